#include "sampling.h"

#include <algorithm>

#include "random.h"
#include "threads.h"

namespace bignn {
namespace {

// Uniform in [0, bound): 53 bits of the word as a fraction. The product stays below bound, since
// 1 - 2^-53 times a double never rounds up to it.
inline std::int64_t below(std::uint64_t word, std::int64_t bound) {
    const auto digits = static_cast<double>(static_cast<std::int64_t>(word >> 11));
    return static_cast<std::int64_t>(digits * 0x1p-53 * static_cast<double>(bound));
}

// Where each node of a graph is among those found, from 1; 0 for the others. The table is kept by
// the thread, all zeros between calls: a new one per batch could cost more than the batch.
class Places {
   public:
    explicit Places(std::size_t num_nodes) {
        if (table().size() < num_nodes) table().resize(num_nodes);
        places_ = table().data();
    }
    Places(const Places&) = delete;
    Places& operator=(const Places&) = delete;
    ~Places() {
        for (const std::int64_t node : found_) places_[node] = 0;
    }

    // The node's number, from 0; a node that was not there gets the next.
    std::int64_t number_of(std::int64_t node) {
        if (places_[node] == 0) {
            found_.push_back(node);
            places_[node] = static_cast<std::int32_t>(found_.size());
        }
        return places_[node] - 1;
    }

    void prefetch(std::int64_t node) const { __builtin_prefetch(places_ + node); }
    const std::int32_t* data() const { return places_; }
    const Numbers& found() const { return found_; }

   private:
    static std::vector<std::int32_t>& table() {
        thread_local std::vector<std::int32_t> kept;
        return kept;
    }

    std::int32_t* places_;
    Numbers found_;
};

// Draws subsets of [0, size), every one of `count` members as likely as any other (Floyd's method:
// the member that would be drawn twice is replaced by the newest candidate, which cannot be there
// yet).
class Subsets {
   public:
    // Writes the members plus `start` to `out`.
    void draw(std::uint64_t key, std::int64_t start, std::int64_t size, std::int64_t count,
              std::int64_t* out) {
        const auto words = static_cast<std::size_t>(size / 64 + 1);
        if (taken_.size() < words) taken_.resize(words);
        std::uint64_t* taken = taken_.data();
        for (std::int64_t k = 0; k < count; ++k) {
            const std::int64_t newest = size - count + k;
            const std::uint64_t word = random_word(key, static_cast<std::uint64_t>(k));
            std::int64_t member = below(word, newest + 1);
            if (taken[member / 64] >> (member % 64) & 1) member = newest;
            taken[member / 64] |= std::uint64_t{1} << (member % 64);
            out[k] = start + member;
        }
        for (std::int64_t k = 0; k < count; ++k) taken[(out[k] - start) / 64] = 0;
    }

   private:
    std::vector<std::uint64_t> taken_;  // a bit per candidate, all 0 between draws
};

template <class Id>
std::int64_t degree(const Adjacency<Id>& graph, std::int64_t node) {
    return graph.offsets[node + 1] - graph.offsets[node];
}

template <class Id>
std::int64_t number_at(const Adjacency<Id>& graph, std::int64_t place) {
    return graph.numbers ? graph.numbers[place] : place;
}

// Turns counts into the places where each row's items begin; returns where the last row's end.
std::int64_t to_offsets(Numbers& counts, std::int64_t begin) {
    for (std::int64_t& count : counts) {
        const std::int64_t size = count;
        count = begin;
        begin += size;
    }
    return begin;
}

void resize(SampledEdges& edges, std::int64_t count) {
    edges.sources.resize(static_cast<std::size_t>(count));
    edges.targets.resize(static_cast<std::size_t>(count));
    edges.numbers.resize(static_cast<std::size_t>(count));
}

// Rows that make a piece of work worth a thread's wake-up (some tens of microseconds).
constexpr std::size_t grain = 512;

}  // namespace

template <class Id>
Neighbourhood sample_neighbours(const Adjacency<Id>& graph, std::span<const std::int64_t> seeds,
                                std::span<const std::int64_t> fanouts, bool replace,
                                std::uint64_t seed) {
    Neighbourhood out;
    SampledEdges& edges = out.edges;
    Places places(graph.num_nodes);
    for (const std::int64_t node : seeds) places.number_of(node);
    out.nodes_per_hop.push_back(static_cast<std::int64_t>(places.found().size()));
    std::size_t begin = 0;
    std::int64_t num_edges = 0;
    Numbers first;
    for (const std::int64_t fanout : fanouts) {
        const std::size_t count = places.found().size() - begin;
        const std::int64_t* frontier = places.found().data() + begin;
        auto takes_all = [&](std::int64_t size) {
            return size == 0 || fanout < 0 || (!replace && size <= fanout);
        };
        first.resize(count);
        auto count_some = [&](std::size_t from, std::size_t to) {
            for (std::size_t i = from; i < to; ++i) {
                const std::int64_t size = degree(graph, frontier[i]);
                first[i] = takes_all(size) ? size : fanout;
            }
        };
        run_in_pieces(count, 8 * grain, count_some);
        const std::int64_t before = num_edges;
        num_edges = to_offsets(first, before);
        resize(edges, num_edges);
        auto draw_some = [&](std::size_t from, std::size_t to) {
            Subsets subsets;
            std::int64_t* places_of = edges.numbers.data();
            std::int64_t* targets = edges.targets.data();
            const std::int64_t end = to < count ? first[to] : num_edges;
            for (std::size_t i = from; i < to; ++i) {
                const std::int64_t node = frontier[i];
                const std::int64_t start = graph.offsets[node];
                const std::int64_t size = degree(graph, node);
                const std::int64_t drawn = (i + 1 < to ? first[i + 1] : end) - first[i];
                std::int64_t* out_places = places_of + first[i];
                const std::uint64_t key = random_word(seed, static_cast<std::uint64_t>(node));
                if (takes_all(size)) {
                    for (std::int64_t k = 0; k < drawn; ++k) out_places[k] = start + k;
                } else if (replace) {
                    for (std::int64_t k = 0; k < drawn; ++k) {
                        const auto draw = static_cast<std::uint64_t>(k);
                        out_places[k] = start + below(random_word(key, draw), size);
                    }
                } else {
                    subsets.draw(key, start, size, drawn, out_places);
                }
                std::fill_n(targets + first[i], drawn, static_cast<std::int64_t>(begin + i));
            }
            // Separate loops, so that many loads are under way at a time.
            std::int64_t* sources = edges.sources.data();
            for (std::int64_t e = first[from]; e < end; ++e) sources[e] = graph.ids[places_of[e]];
            if (!graph.numbers) return;
            for (std::int64_t e = first[from]; e < end; ++e) {
                places_of[e] = graph.numbers[places_of[e]];
            }
        };
        run_in_pieces(count, grain, draw_some);
        begin += count;
        // On one thread, since numbers are given in the order of finding. Distant loads are
        // prefetched.
        constexpr std::int64_t ahead = 24;
        std::int64_t* sources = edges.sources.data();
        for (std::int64_t edge = before; edge < num_edges; ++edge) {
            if (edge + ahead < num_edges) places.prefetch(sources[edge + ahead]);
            sources[edge] = places.number_of(sources[edge]);
        }
        out.nodes_per_hop.push_back(static_cast<std::int64_t>(places.found().size() - begin));
        out.edges_per_hop.push_back(num_edges - before);
    }
    out.nodes = places.found();
    return out;
}

template <class Id>
void random_walks(const Adjacency<Id>& graph, std::span<const std::int64_t> roots,
                  std::size_t length, std::uint64_t seed, std::int64_t* walks) {
    // A step of all walks of a piece, then the next: their loads do not wait for each other.
    auto some = [&](std::size_t from, std::size_t to) {
        for (std::size_t w = from; w < to; ++w) walks[w * (length + 1)] = roots[w];
        for (std::size_t step = 0; step < length; ++step) {
            for (std::size_t w = from; w < to; ++w) {
                std::int64_t* at = walks + w * (length + 1) + step;
                const std::int64_t size = degree(graph, at[0]);
                const std::uint64_t word = random_word(random_word(seed, w), step);
                at[1] = size == 0 ? at[0] : graph.ids[graph.offsets[at[0]] + below(word, size)];
            }
        }
    };
    run_in_pieces(roots.size(), grain, some);
}

template <class Id>
SampledEdges edges_between(const Adjacency<Id>& graph, std::span<const std::int64_t> rows,
                           std::span<const std::int64_t> columns) {
    Places places(graph.num_nodes);
    for (const std::int64_t node : columns) places.number_of(node);
    const std::int32_t* place = places.data();
    Numbers first(rows.size());
    auto count_some = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
            std::int64_t inside = 0;
            for (std::int64_t e = graph.offsets[rows[i]]; e < graph.offsets[rows[i] + 1]; ++e) {
                inside += place[graph.ids[e]] != 0;
            }
            first[i] = inside;
        }
    };
    run_in_pieces(rows.size(), grain, count_some);
    SampledEdges edges;
    resize(edges, to_offsets(first, 0));
    auto write_some = [&](std::size_t from, std::size_t to) {
        for (std::size_t i = from; i < to; ++i) {
            auto at = static_cast<std::size_t>(first[i]);
            for (std::int64_t e = graph.offsets[rows[i]]; e < graph.offsets[rows[i] + 1]; ++e) {
                if (place[graph.ids[e]] == 0) continue;
                edges.sources[at] = place[graph.ids[e]] - 1;
                edges.targets[at] = static_cast<std::int64_t>(i);
                edges.numbers[at] = number_at(graph, e);
                ++at;
            }
        }
    };
    run_in_pieces(rows.size(), grain, write_some);
    return edges;
}

void sort_edges(std::span<const std::int64_t> rows, std::span<const std::int64_t> columns,
                std::span<std::int64_t> offsets, std::int32_t* ids, std::int64_t* numbers) {
    std::fill(offsets.begin(), offsets.end(), 0);
    for (const std::int64_t row : rows) ++offsets[static_cast<std::size_t>(row) + 1];
    for (std::size_t v = 1; v < offsets.size(); ++v) offsets[v] += offsets[v - 1];
    std::vector<std::int64_t> next(offsets.begin(), offsets.end() - 1);
    for (std::size_t e = 0; e < rows.size(); ++e) {
        const std::int64_t place = next[static_cast<std::size_t>(rows[e])]++;
        ids[place] = static_cast<std::int32_t>(columns[e]);
        numbers[place] = static_cast<std::int64_t>(e);
    }
}

#define BIGNN_SAMPLING_FOR(Id)                                                                    \
    template Neighbourhood sample_neighbours<Id>(                                                 \
        const Adjacency<Id>&, std::span<const std::int64_t>, std::span<const std::int64_t>, bool, \
        std::uint64_t);                                                                           \
    template void random_walks<Id>(const Adjacency<Id>&, std::span<const std::int64_t>,           \
                                   std::size_t, std::uint64_t, std::int64_t*);                    \
    template SampledEdges edges_between<Id>(const Adjacency<Id>&, std::span<const std::int64_t>,  \
                                            std::span<const std::int64_t>);
BIGNN_SAMPLING_FOR(std::int32_t)
BIGNN_SAMPLING_FOR(std::int64_t)

}  // namespace bignn
