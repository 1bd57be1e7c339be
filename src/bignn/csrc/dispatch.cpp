// The CPU is probed once, the first time anybody asks.
#include "dispatch.h"

#include <stdexcept>

namespace bignn {
namespace {

#if defined(__x86_64__)
// __builtin_cpu_supports also checks that the operating system saves the wide registers.
std::string missing_for_avx2() {
    std::string missing;
    if (!__builtin_cpu_supports("avx2")) missing += " avx2";
    if (!__builtin_cpu_supports("popcnt")) missing += " popcnt";
    return missing;
}

std::string missing_for_avx512() {
    std::string missing;
    if (!__builtin_cpu_supports("avx512f")) missing += " avx512f";
    if (!__builtin_cpu_supports("avx512bw")) missing += " avx512bw";
    if (!__builtin_cpu_supports("avx512vl")) missing += " avx512vl";
    if (!__builtin_cpu_supports("avx512dq")) missing += " avx512dq";
    if (!__builtin_cpu_supports("avx512vbmi")) missing += " avx512vbmi";
    if (!__builtin_cpu_supports("avx512vnni")) missing += " avx512vnni";
    if (!__builtin_cpu_supports("avx512vpopcntdq")) missing += " avx512vpopcntdq";
    if (!__builtin_cpu_supports("gfni")) missing += " gfni";
    return missing;
}
#else
std::string missing_for_avx2() { return " x86-64"; }
std::string missing_for_avx512() { return " x86-64"; }
#endif

InstructionSet describe(const Kernels& kernels, const std::string& missing) {
    return {&kernels, missing.empty(), missing.empty() ? missing : missing.substr(1)};
}

}  // namespace

const std::vector<InstructionSet>& instruction_sets() {
    static const std::vector<InstructionSet> sets = {
        describe(portable_kernels, ""),
        describe(avx2_kernels, missing_for_avx2()),
        describe(avx512_kernels, missing_for_avx512()),
    };
    return sets;
}

const Kernels& best_kernels() {
    const Kernels* best = &portable_kernels;
    for (const InstructionSet& set : instruction_sets()) {
        if (set.supported) best = set.kernels;
    }
    return *best;
}

const Kernels& kernels_named(const std::string& name) {
    for (const InstructionSet& set : instruction_sets()) {
        if (name != set.kernels->name) continue;
        if (!set.supported) {
            throw std::invalid_argument("this CPU cannot run '" + name + "' kernels: it lacks " +
                                        set.missing);
        }
        return *set.kernels;
    }
    throw std::invalid_argument("there are no '" + name + "' kernels");
}

}  // namespace bignn
