// Asks the CPU, once, which instruction sets it has.
#include "dispatch.h"

#include <initializer_list>
#include <map>
#include <stdexcept>

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace bignn {
namespace {

#if defined(__aarch64__)
// Whether the CPU has the dot-product extension; there is no instruction that a program may ask.
bool has_dot_product() {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#elif defined(__APPLE__)
    int has = 0;
    std::size_t size = sizeof has;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &has, &size, nullptr, 0) == 0 && has != 0;
#else
    return false;
#endif
}
#endif

// The features that the instruction sets below ask for, and whether this CPU has them.
const std::map<std::string, bool>& cpu_features() {
    static const std::map<std::string, bool> features = {
#if defined(__x86_64__)
        // __builtin_cpu_supports also checks that the operating system saves the wide registers.
        {"avx2", __builtin_cpu_supports("avx2")},
        {"avx512bw", __builtin_cpu_supports("avx512bw")},
        {"avx512dq", __builtin_cpu_supports("avx512dq")},
        {"avx512f", __builtin_cpu_supports("avx512f")},
        {"avx512vbmi", __builtin_cpu_supports("avx512vbmi")},
        {"avx512vl", __builtin_cpu_supports("avx512vl")},
        {"avx512vnni", __builtin_cpu_supports("avx512vnni")},
        {"avx512vpopcntdq", __builtin_cpu_supports("avx512vpopcntdq")},
        {"avxvnni", __builtin_cpu_supports("avxvnni")},
        {"gfni", __builtin_cpu_supports("gfni")},
        {"popcnt", __builtin_cpu_supports("popcnt")},
#elif defined(__aarch64__)
        {"asimddp", has_dot_product()},  // as Linux calls it
#endif
    };
    return features;
}

// An instruction set that needs these features.
InstructionSet needs(const Kernels& kernels, std::initializer_list<const char*> features) {
    std::string missing;
    for (const char* feature : features) {
        if (cpu_features().at(feature)) continue;
        if (!missing.empty()) missing += ' ';
        missing += feature;
    }
    return {&kernels, missing.empty(), missing};
}

// The first that this CPU has of several encodings of the same instructions.
[[maybe_unused]] InstructionSet first_supported(std::initializer_list<InstructionSet> encodings) {
    for (const InstructionSet& set : encodings) {
        if (set.supported) return set;
    }
    return *encodings.begin();
}

}  // namespace

// Instruction sets of another architecture are not compiled, and not listed.
const std::vector<InstructionSet>& instruction_sets() {
    static const std::vector<InstructionSet> sets = {
        needs(portable_kernels, {}),
#if defined(__x86_64__)
        needs(avx2_kernels, {"avx2", "popcnt"}),
        first_supported({needs(avx2_vnni_kernels, {"avx2", "popcnt", "avxvnni"}),
                         needs(avx2_vnni_evex_kernels,
                               {"avx2", "popcnt", "avx512f", "avx512vl", "avx512vnni"})}),
        needs(avx512_kernels, {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vbmi",
                               "avx512vnni", "avx512vpopcntdq", "gfni"}),
#elif defined(__aarch64__)
        needs(neon_kernels, {}),
        needs(neon_dot_kernels, {"asimddp"}),
#endif
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
    throw std::invalid_argument("this build has no '" + name + "' kernels");
}

}  // namespace bignn
