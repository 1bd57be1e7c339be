// Runs the cases of a file (case_file.py writes it) on every instruction set that the CPU has, and
// compares the results, byte by byte, with those that stand beside them.
//
//     run_cases FILE
//
// Prints a line per instruction set, "NAME: ran" or "NAME: lacks FEATURES", a line per case that
// came out differently, and the number of cases. Exits with 1 if one differed.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"
#include "packed_layers.h"

namespace {

using namespace bignn;

// Numbers are 64 bits; an array is its number of items, -1 if there is none, and its bytes.
class CaseFile {
   public:
    explicit CaseFile(const char* path) : file_(path, std::ios::binary) {
        if (!file_) throw std::runtime_error(std::string("cannot read ") + path);
    }

    std::int64_t number() {
        std::int64_t value = 0;
        read(&value, sizeof value);
        return value;
    }

    std::size_t size() { return static_cast<std::size_t>(number()); }

    template <class T>
    std::optional<std::vector<T>> maybe_array() {
        const std::int64_t count = number();
        if (count < 0) return std::nullopt;
        std::vector<T> items(static_cast<std::size_t>(count));
        read(items.data(), items.size() * sizeof(T));
        return items;
    }

    template <class T>
    std::vector<T> array() {
        return maybe_array<T>().value();
    }

    std::string text() {
        const std::vector<char> letters = array<char>();
        return {letters.begin(), letters.end()};
    }

   private:
    void read(void* to, std::size_t size) {
        file_.read(static_cast<char*>(to), static_cast<std::streamsize>(size));
        if (!file_) throw std::runtime_error("the file ends early");
    }

    std::ifstream file_;
};

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
const T* data_of(const std::optional<std::vector<T>>& items) {
    return items ? items->data() : nullptr;
}

Aligned<half> panels_of(const std::vector<word>& b, std::size_t num_words) {
    const std::size_t count = b.size() / num_words;
    std::vector<std::size_t> order(count);
    for (std::size_t n = 0; n < count; ++n) order[n] = n;
    const std::size_t padded = (count + panel_width - 1) / panel_width * panel_width;
    Aligned<half> panels(padded * 2 * num_words);
    fill_panels(b.data(), count, num_words, order.data(), count, panels.data());
    return panels;
}

// --- Layers ------------------------------------------------------------------------------------

struct CaseLayer {
    explicit CaseLayer(CaseFile& file) {
        num_inputs = file.size();
        edge_bits = static_cast<int>(file.number());
        words = file.array<word>();
        scale = file.array<float>();
        shift = file.array<float>();
        own_words = file.array<word>();
        own_scale = file.array<float>();
        attention.heads = file.size();
        attention.averages = file.number() != 0;
        attention.slope = file.array<float>().at(0);
        attention.values = file.array<std::int32_t>();
        attention.sigma = file.array<float>();
        end_scale = file.array<float>();
        bytes_per_column = file.size();
        offsets = file.array<std::int64_t>();
        ids = file.maybe_array<std::int32_t>();
        long_ids = file.maybe_array<std::int64_t>();
        edge_weights = file.maybe_array<float>();
        target_factor = file.array<float>();
        num_sources = file.size();
        own_ids = file.maybe_array<std::int32_t>();
        out_scale = file.maybe_array<float>();
    }

    // New weights: those that were run remember how many bytes their records took.
    std::unique_ptr<LayerWeights> weights() const {
        auto made = std::make_unique<LayerWeights>();
        made->num_inputs = num_inputs;
        made->edge_bits = edge_bits;
        made->words = words;
        made->scale = scale;
        made->shift = shift;
        made->own_words = own_words;
        made->own_scale = own_scale;
        made->end_scale = end_scale;
        made->attention = attention;
        if (bytes_per_column > 1) made->widen(bytes_per_column / 2);
        return made;
    }

    LayerSpec spec(const LayerWeights& weights, char way) const {
        Edges edges{};
        edges.offsets = offsets.data();
        edges.ids = data_of(ids);
        edges.long_ids = data_of(long_ids);
        edges.weights = data_of(edge_weights);
        edges.target_factor = target_factor.data();
        edges.num_rows = offsets.size() - 1;
        const auto chosen = way == 'G'   ? LayerSpec::Way::gather
                            : way == 'S' ? LayerSpec::Way::sparse
                                         : LayerSpec::Way::transform;
        return {&weights, edges, data_of(own_ids), num_sources, chosen, data_of(out_scale),
                false,    false};
    }

    std::size_t num_inputs;
    int edge_bits;
    std::vector<word> words;
    std::vector<float> scale, shift;
    std::vector<word> own_words;
    std::vector<float> own_scale;
    AttentionWeights attention;
    std::vector<float> end_scale;
    std::size_t bytes_per_column;
    std::vector<std::int64_t> offsets;
    std::optional<std::vector<std::int32_t>> ids;
    std::optional<std::vector<std::int64_t>> long_ids;
    std::optional<std::vector<float>> edge_weights;
    std::vector<float> target_factor;
    std::size_t num_sources;
    std::optional<std::vector<std::int32_t>> own_ids;
    std::optional<std::vector<float>> out_scale;
};

// Runs the layers in each of the case's ways; `differs` is called with what came out differently.
template <class Differs>
void run_layers(CaseFile& file, const std::vector<const Kernels*>& sets, Differs differs) {
    std::vector<CaseLayer> layers;
    for (std::size_t left = file.size(); left > 0; --left) layers.emplace_back(file);
    const auto words = file.maybe_array<word>();
    const auto offsets = file.maybe_array<std::int64_t>();
    const auto inputs = file.maybe_array<std::int32_t>();
    Features features;
    features.num_rows = file.size();
    features.words = data_of(words);
    features.offsets = data_of(offsets);
    features.inputs = data_of(inputs);
    if (!words) features.base = file.array<word>();
    const auto source_factor = file.array<float>();
    std::vector<std::string> ways;
    for (std::size_t left = file.size(); left > 0; --left) ways.push_back(file.text());
    const auto expected_values = file.array<float>();
    const auto expected_classes = file.array<std::int64_t>();
    for (const Kernels* kernels : sets) {
        for (const std::string& way : ways) {
            PackedLayers packed(*kernels, features, source_factor.data());
            std::vector<std::unique_ptr<LayerWeights>> weights;
            for (std::size_t n = 0; n < layers.size(); ++n) {
                weights.push_back(layers[n].weights());
                packed.add(layers[n].spec(*weights[n], way[n]));
            }
            std::vector<float> values(expected_values.size());
            packed.run(layers.size(), values.data(), nullptr);
            if (!same(values, expected_values)) differs(*kernels, "values by " + way);
            std::vector<std::int64_t> classes(expected_classes.size());
            packed.run(layers.size(), nullptr, classes.data());
            if (!same(classes, expected_classes)) differs(*kernels, "classes by " + way);
        }
    }
}

// --- Products and masks ------------------------------------------------------------------------

template <class Differs>
void run_products(CaseFile& file, const std::vector<const Kernels*>& sets, Differs differs) {
    const std::size_t num_bits = file.size(), num_words = words_per_row(num_bits);
    const auto x = file.array<float>();
    const auto b = file.array<word>();
    const auto packed = file.array<word>();
    const auto dots = file.array<std::int32_t>();
    const std::size_t num_rows = x.size() / num_bits, num_columns = b.size() / num_words;
    const Aligned<half> panels = panels_of(b, num_words);
    for (const Kernels* kernels : sets) {
        std::vector<word> words(packed.size());
        kernels->pack_rows(x.data(), num_rows, num_bits, words.data());
        if (!same(words, packed)) differs(*kernels, "packed rows");
        std::vector<std::int32_t> out(dots.size());
        kernels->xnor_rows(packed.data(), panels.data(), 0, num_rows, num_columns, num_bits,
                           out.data());
        if (!same(out, dots)) differs(*kernels, "products");
    }
}

template <class Differs>
void run_masks(CaseFile& file, const std::vector<const Kernels*>& sets, Differs differs) {
    const std::size_t num_bits = file.size(), num_words = words_per_row(num_bits);
    const auto seed = static_cast<std::uint64_t>(file.number());
    const auto keep = static_cast<std::uint32_t>(file.number());
    const auto among = file.array<word>();
    const auto rows = file.array<word>();
    const auto b = file.array<word>();
    const auto g = file.array<float>();
    const auto x = file.array<float>();
    const auto masks = file.array<word>();
    const auto products = file.array<float>();
    const auto gradient = file.array<float>();
    const auto kept = file.array<float>();
    const std::size_t num_rows = rows.size() / num_words, num_columns = b.size() / num_words;
    const Aligned<half> panels = panels_of(b, num_words);
    for (const Kernels* kernels : sets) {
        std::vector<word> drawn(masks.size());
        kernels->draw_masks(seed, keep, among.data(), 0, among.size(), drawn.data());
        if (!same(drawn, masks)) differs(*kernels, "masks");
        std::vector<float> out(products.size());
        kernels->masked_rows(rows.data(), masks.data(), panels.data(), 0, num_rows, num_columns,
                             num_bits, out.data());
        if (!same(out, products)) differs(*kernels, "masked products");
        std::vector<float> sums(num_words * gradient_floats_per_word), gradients(gradient.size());
        kernels->masked_gradient(rows.data(), masks.data(), num_rows, num_bits, g.data(),
                                 num_columns, 0, num_words, sums.data(), gradients.data());
        if (!same(gradients, gradient)) differs(*kernels, "gradient");
        std::vector<float> left(kept.size());
        kernels->keep_masked(x.data(), masks.data(), 0, num_rows, num_bits, left.data());
        if (!same(left, kept)) differs(*kernels, "kept values");
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::puts("usage: run_cases FILE");
        return 2;
    }
    std::vector<const Kernels*> sets;
    for (const InstructionSet& set : instruction_sets()) {
        if (set.supported) {
            sets.push_back(set.kernels);
            std::printf("%s: ran\n", set.kernels->name);
        } else {
            std::printf("%s: lacks %s\n", set.kernels->name, set.missing.c_str());
        }
    }
    std::printf("best: %s\n", best_kernels().name);
    CaseFile file(argv[1]);
    const std::size_t count = file.size();
    std::size_t different = 0;
    for (std::size_t number = 0; number < count; ++number) {
        const std::string kind = file.text(), name = file.text();
        const auto differs = [&](const Kernels& kernels, const std::string& what) {
            std::printf("%s differ on %s: %s\n", what.c_str(), kernels.name, name.c_str());
            ++different;
        };
        if (kind == "layers") {
            run_layers(file, sets, differs);
        } else if (kind == "products") {
            run_products(file, sets, differs);
        } else if (kind == "masks") {
            run_masks(file, sets, differs);
        } else {
            throw std::runtime_error("no such kind of case: " + kind);
        }
    }
    std::printf("%zu cases, %zu results differ\n", count, different);
    return different ? 1 : 0;
}
