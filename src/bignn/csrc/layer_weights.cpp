#include "layer_weights.h"

#include <algorithm>
#include <bit>

namespace bignn {
namespace {

constexpr std::size_t whole_panels(std::size_t count) {
    return (count + panel_width - 1) / panel_width * panel_width;
}

}  // namespace

void fill_panels(const word* b, std::size_t num_rows, std::size_t num_words,
                 const std::size_t* order, std::size_t count, half* panels) {
    const std::size_t num_halves = 2 * num_words;
    std::fill(panels, panels + whole_panels(count) * num_halves, half{0});
    for (std::size_t position = 0; position < count; ++position) {
        const std::size_t row = order[position];
        if (row >= num_rows) continue;
        half* panel = panels + position / panel_width * panel_width * num_halves;
        for (std::size_t w = 0; w < num_halves; ++w) {
            panel[w * panel_width + position % panel_width] =
                static_cast<half>(b[row * num_words + w / 2] >> (w % 2 * 32));
        }
    }
}

void LayerWeights::set(Layer& layer) const {
    layer.edge_bits = edge_bits;
    layer.num_inputs = num_inputs;
    layer.num_outputs = num_outputs();
    layer.scale = scale.data();
    layer.shift = shift.data();
    layer.end_scale = reads_bits() ? end_scale.data() : nullptr;
    if (!own_words.empty()) layer.own = {.panels = own_panels().data(), .scale = own_scale.data()};
}

void LayerWeights::widen(std::size_t overflowed) const {
    std::size_t known = bytes_per_column_;
    while (known < 2 * overflowed &&
           !bytes_per_column_.compare_exchange_weak(known, 2 * overflowed)) {
    }
}

const LayerWeights::RecordForm& LayerWeights::record_form(std::size_t bytes_per_column) const {
    const std::lock_guard<std::mutex> lock(making_);
    const auto found = record_forms_.find(bytes_per_column);
    if (found != record_forms_.end()) return found->second;
    RecordForm form;
    const std::size_t of_head = record_stride(channels(), bytes_per_column);
    form.stride = heads() * of_head;
    for (std::size_t head = 0; head < heads(); ++head) {
        for (std::size_t position = 0; position < of_head / bytes_per_column; ++position) {
            const std::size_t column = record_column(position, of_head, bytes_per_column);
            form.columns.push_back(column < channels() ? head * channels() + column
                                                       : num_columns());
        }
    }
    const std::size_t count = form.columns.size(), num_words = words_per_row(num_inputs);
    form.panels = Aligned<half>(whole_panels(count) * 2 * num_words);
    fill_panels(words.data(), num_columns(), num_words, form.columns.data(), count,
                form.panels.data());
    form.valid.assign(whole_panels(count) / panel_width, 0);
    for (std::size_t position = 0; position < count; ++position) {
        if (form.columns[position] < num_columns()) {
            form.valid[position / panel_width] |=
                static_cast<std::uint16_t>(1u << (position % panel_width));
        }
    }
    return record_forms_.emplace(bytes_per_column, std::move(form)).first->second;
}

std::shared_ptr<const LayerWeights::Signs> LayerWeights::sign_table(
    std::size_t bytes_per_column, const std::vector<word>& base) const {
    const RecordForm& form = record_form(bytes_per_column);
    const std::lock_guard<std::mutex> lock(making_);
    for (const KeptSignTable& kept : sign_tables_) {
        if (kept.bytes_per_column == bytes_per_column && kept.base == base) return kept.table;
    }
    const std::size_t count = form.columns.size(), num_words = words_per_row(num_inputs);
    Signs table{Aligned<std::int8_t>(num_inputs * count), {}};
    if (bytes_per_column == 1 && count % word_bits == 0) {
        table.positive.assign(num_inputs * count / word_bits, 0);
    }
    for (std::size_t k = 0; k < num_inputs; ++k) {
        for (std::size_t position = 0; position < count; ++position) {
            const std::size_t column = form.columns[position];
            std::int8_t sign = 0;
            if (column < num_columns()) {
                const word differs =
                    words[column * num_words + k / word_bits] ^ base[k / word_bits];
                sign = differs >> (k % word_bits) & 1 ? 1 : -1;
            }
            const std::size_t at = k * count + position;
            table.bytes[at] = sign;
            if (sign > 0 && !table.positive.empty()) {
                table.positive[at / word_bits] |= word{1} << at % word_bits;
            }
        }
    }
    constexpr std::size_t most_kept = 4;
    if (sign_tables_.size() == most_kept) sign_tables_.pop_front();
    auto shared = std::make_shared<const Signs>(std::move(table));
    sign_tables_.push_back({bytes_per_column, base, shared});
    return shared;
}

const LayerWeights::ProductForm& LayerWeights::product_form(const Kernels& kernels) const {
    const std::lock_guard<std::mutex> lock(making_);
    const auto found = product_forms_.find(kernels.name);
    if (found != product_forms_.end()) return found->second;
    ProductForm form;
    // Heads' products begin on cache lines.
    form.stride = (kernels.product_bytes(num_inputs, channels()) + 63) / 64 * 64;
    form.bytes = Aligned<std::byte>(heads() * form.stride);
    const std::size_t num_words = words_per_row(num_inputs);
    for (std::size_t head = 0; head < heads(); ++head) {
        kernels.make_product(words.data() + head * channels() * num_words, num_inputs, channels(),
                             form.bytes.data() + head * form.stride);
    }
    return product_forms_.emplace(kernels.name, std::move(form)).first->second;
}

const Aligned<half>& LayerWeights::own_panels() const {
    const std::lock_guard<std::mutex> lock(making_);
    if (own_panels_.size() == 0) {
        const std::size_t num_words = words_per_row(num_inputs);
        std::vector<std::size_t> order(num_outputs());
        for (std::size_t c = 0; c < order.size(); ++c) order[c] = c;
        own_panels_ = Aligned<half>(whole_panels(order.size()) * 2 * num_words);
        fill_panels(own_words.data(), order.size(), num_words, order.data(), order.size(),
                    own_panels_.data());
    }
    return own_panels_;
}

std::vector<std::int32_t> LayerWeights::products(const word* row) const {
    const std::size_t num_words = words_per_row(num_inputs);
    std::vector<std::int32_t> dots(num_columns());
    for (std::size_t c = 0; c < dots.size(); ++c) {
        int differing = 0;
        for (std::size_t w = 0; w < num_words; ++w) {
            differing += std::popcount(row[w] ^ words[c * num_words + w]);
        }
        dots[c] = static_cast<std::int32_t>(num_inputs) - 2 * differing;
    }
    return dots;
}

}  // namespace bignn
