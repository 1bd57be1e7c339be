#include "program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <new>

#include "threads.h"

namespace bignn {
namespace {

// Pieces are many enough for skewed degrees to even out, and whole tiles.
std::size_t grain_for(std::size_t num_rows) {
    const std::size_t pieces = static_cast<std::size_t>(num_threads()) * 8;
    const std::size_t rows = std::clamp<std::size_t>(num_rows / pieces, 64, 4096);
    return rows / tile_rows * tile_rows;
}

struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
};

// Each thread keeps its scratch from call to call.
std::byte* scratch_of(std::size_t size) {
    thread_local std::unique_ptr<std::byte, Free> bytes;
    thread_local std::size_t capacity = 0;
    if (size > capacity) {
        const std::size_t rounded = (size + 4095) / 4096 * 4096;
        bytes.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
        if (!bytes) {
            capacity = 0;
            throw std::bad_alloc();
        }
        capacity = rounded;
    }
    return bytes.get();
}

}  // namespace

bool Program::prepare(const Step& step) {
    if (step.scores.count) {
        auto rows = [&](std::size_t begin, std::size_t end) {
            kernels_.score_rows(step.scores, begin, end);
        };
        run_in_pieces(step.scores.num_rows, grain_for(step.scores.num_rows), rows);
    }
    const Source& source = step.source;
    if (source.kind == Source::Kind::none) return true;
    std::atomic<bool> fits{true};
    auto rows = [&](std::size_t begin, std::size_t end) {
        const bool fit =
            source.kind == Source::Kind::bits
                ? kernels_.records_of_bits(source.words, source.panels, begin, end, source.records)
                : kernels_.records_of_sparse(source.rows, source.table, begin, end, source.records);
        if (!fit) fits = false;
    };
    run_in_pieces(source.num_rows, grain_for(source.num_rows), rows);
    return fits;
}

bool Program::run_layer(const Layer& layer, std::size_t begin, std::size_t end) {
    std::atomic<bool> fits{true};
    const std::size_t size = kernels_.scratch_bytes(layer);
    auto rows = [&](std::size_t first, std::size_t last) {
        if (!kernels_.layer_rows(layer, begin + first, begin + last, scratch_of(size))) {
            fits = false;
        }
    };
    run_in_pieces(end - begin, grain_for(end - begin), rows);
    return fits;
}

int Program::run(std::size_t num_steps, float* values, std::int64_t* classes, double* seconds) {
    for (std::size_t i = 0; i < num_steps; ++i) {
        const auto start = std::chrono::steady_clock::now();
        const Step& step = steps_[i];
        Layer layer = step.layer;
        if (i + 1 == steps_.size() && (values || classes)) {
            layer.values = values;
            layer.classes = classes;
        }
        if (!prepare(step)) return static_cast<int>(i);
        if (!run_layer(layer, 0, layer.neighbours.num_rows)) {
            return static_cast<int>(i) + 1;
        }
        seconds[i] =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    // A last layer that is left to run_rows.
    const bool fits = num_steps == steps_.size() || prepare(steps_[num_steps]);
    return fits ? -1 : static_cast<int>(num_steps);
}

void Program::run_rows(std::size_t begin, std::size_t end, float* values) {
    Layer layer = steps_.back().layer;
    layer.values = values;
    layer.first_value = begin;
    layer.out_factor = nullptr;
    run_layer(layer, begin, end);
}

}  // namespace bignn
