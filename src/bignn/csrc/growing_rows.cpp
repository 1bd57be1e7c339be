#include "growing_rows.h"

#include <algorithm>
#include <numeric>

namespace bignn {
namespace {

// Room that a row of so many entries gets: an eighth more, and some for rows of few.
std::uint32_t room_for(std::uint32_t size) { return size + size / 8 + 2; }

}  // namespace

GrowingRows::GrowingRows(std::size_t num_rows, const std::int64_t* offsets, const std::int32_t* ids,
                         const float* weights)
    : rows_(num_rows), has_weights_(weights != nullptr) {
    std::size_t total = 0;
    for (std::size_t row = 0; row < num_rows; ++row) {
        const auto size = static_cast<std::uint32_t>(offsets[row + 1] - offsets[row]);
        rows_[row] = {total, size, room_for(size)};
        total += rows_[row].room;
    }
    ids_.resize(total);
    if (weights) weights_.resize(total);
    std::vector<std::int64_t> order;
    for (std::size_t row = 0; row < num_rows; ++row) {
        // Rows that somebody else made may be in any order.
        order.resize(rows_[row].size);
        std::iota(order.begin(), order.end(), offsets[row]);
        if (!std::is_sorted(ids + offsets[row], ids + offsets[row + 1])) {
            std::stable_sort(order.begin(), order.end(),
                             [&](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
        }
        std::size_t at = rows_[row].begin;
        for (const std::int64_t e : order) {
            ids_[at] = ids[e];
            if (weights) {
                weights_[at] = weights[e];
                count_weight(weights[e], 1);
            }
            ++at;
        }
    }
    num_entries_ = static_cast<std::size_t>(offsets[num_rows]);
}

std::size_t GrowingRows::nbytes() const {
    return rows_.capacity() * sizeof(Row) + ids_.capacity() * sizeof(std::int32_t) +
           weights_.capacity() * sizeof(float);
}

bool GrowingRows::has(std::size_t row, std::int32_t id) const {
    const auto found = ids(row);
    return std::binary_search(found.begin(), found.end(), id);
}

void GrowingRows::count_weight(float weight, std::ptrdiff_t by) {
    if (weight != 1.0f) num_weighted_ += static_cast<std::size_t>(by);
}

void GrowingRows::move_to_end(Row& row) {
    const std::size_t begin = ids_.size();
    const std::uint32_t room = room_for(row.size + 1);
    ids_.resize(begin + room);
    std::copy_n(ids_.begin() + static_cast<std::ptrdiff_t>(row.begin), row.size,
                ids_.begin() + static_cast<std::ptrdiff_t>(begin));
    if (has_weights_) {
        weights_.resize(begin + room);
        std::copy_n(weights_.begin() + static_cast<std::ptrdiff_t>(row.begin), row.size,
                    weights_.begin() + static_cast<std::ptrdiff_t>(begin));
    }
    row.begin = begin;
    row.room = room;
}

void GrowingRows::compact() {
    std::vector<std::int64_t> offsets(rows_.size() + 1);
    std::vector<std::int32_t> ids;
    std::vector<float> weights;
    ids.reserve(num_entries_);
    weights.reserve(has_weights_ ? num_entries_ : 0);
    for (std::size_t row = 0; row < rows_.size(); ++row) {
        const auto some = this->ids(row);
        ids.insert(ids.end(), some.begin(), some.end());
        if (const float* from = this->weights(row)) {
            weights.insert(weights.end(), from, from + some.size());
        }
        offsets[row + 1] = static_cast<std::int64_t>(ids.size());
    }
    *this = GrowingRows(rows_.size(), offsets.data(), ids.data(),
                        has_weights_ ? weights.data() : nullptr);
}

void GrowingRows::insert(std::size_t number, std::int32_t id, float weight) {
    if (weight != 1.0f && !has_weights_) {
        weights_.assign(ids_.size(), 1.0f);
        has_weights_ = true;
    }
    if (rows_[number].size == rows_[number].room) {
        if (ids_.size() > 2 * num_entries_ + 8 * rows_.size()) compact();
        move_to_end(rows_[number]);
    }
    Row& row = rows_[number];
    const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(row.begin);
    const auto end = begin + row.size;
    const auto at = std::upper_bound(begin, end, id);
    std::copy_backward(at, end, end + 1);
    if (has_weights_) {
        const auto of_weights = weights_.begin() + static_cast<std::ptrdiff_t>(row.begin);
        const auto place = of_weights + (at - begin);
        std::copy_backward(place, of_weights + row.size, of_weights + row.size + 1);
        *place = weight;
        count_weight(weight, 1);
    }
    *at = id;
    ++row.size;
    ++num_entries_;
}

std::size_t GrowingRows::remove(std::size_t number, std::int32_t id) {
    Row& row = rows_[number];
    const auto begin = ids_.begin() + static_cast<std::ptrdiff_t>(row.begin);
    const auto end = begin + row.size;
    const auto [first, last] = std::equal_range(begin, end, id);
    const auto count = static_cast<std::size_t>(last - first);
    if (count == 0) return 0;
    if (has_weights_) {
        const auto of_weights = weights_.begin() + static_cast<std::ptrdiff_t>(row.begin);
        const auto from = of_weights + (first - begin), to = of_weights + (last - begin);
        for (auto some = from; some != to; ++some) count_weight(*some, -1);
        std::copy(to, of_weights + row.size, from);
    }
    std::copy(last, end, first);
    row.size -= static_cast<std::uint32_t>(count);
    num_entries_ -= count;
    return count;
}

}  // namespace bignn
