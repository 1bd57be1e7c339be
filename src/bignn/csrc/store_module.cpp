// Sizes are checked here: a wrong one would be read past an array's end. Long work gives up the
// interpreter's lock, so that files are read and written meanwhile.
#include "store_module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

#include "arrays.h"
#include "dispatch.h"
#include "edge_buckets.h"
#include "feature_rows.h"
#include "synthetic_rows.h"

namespace nb = nanobind;

namespace bignn {
namespace {

using Column = std::optional<Vector<const float>>;

FeatureRows feature_rows(const Matrix<const float>& x, bool normalizes_rows, const Column& mean,
                         const Column& scale) {
    const std::size_t columns = x.shape(1);
    if (columns == 0) refuse("'x' has no columns");
    if (mean.has_value() != scale.has_value()) refuse("'mean' and 'scale' go together");
    return {checked("x", x, x.size()),
            x.shape(0),
            columns,
            normalizes_rows,
            mean ? checked("mean", *mean, columns) : nullptr,
            scale ? checked("scale", *scale, columns) : nullptr};
}

std::int64_t unsound_row(Matrix<const float> x) {
    const FeatureRows rows = feature_rows(x, false, {}, {});
    nb::gil_scoped_release release;
    return first_unsound_row(rows);
}

void pack(Matrix<const float> x, bool normalizes_rows, Column mean, Column scale,
          Matrix<word> words, Vector<float> beta, const std::string& isa) {
    const Kernels& kernels = kernels_named(isa);
    const FeatureRows rows = feature_rows(x, normalizes_rows, mean, scale);
    if (words.shape(0) != rows.num_rows || words.shape(1) != words_per_row(rows.num_columns)) {
        refuse("'words' must be packed rows of x");
    }
    float* scales = checked("beta", beta, rows.num_rows);
    word* packed = checked("words", words, words.size());
    nb::gil_scoped_release release;
    pack_features(kernels, rows, packed, scales);
}

void statistics(Matrix<const float> x, bool normalizes_rows, Matrix<double> mean,
                Matrix<double> squares, Matrix<float> least, Matrix<float> largest) {
    const FeatureRows rows = feature_rows(x, normalizes_rows, {}, {});
    const std::size_t parts = (rows.num_rows + statistics_rows - 1) / statistics_rows;
    const std::size_t size = parts * rows.num_columns;
    double *means = checked("mean", mean, size), *sums = checked("squares", squares, size);
    float *low = checked("least", least, size), *high = checked("largest", largest, size);
    nb::gil_scoped_release release;
    feature_statistics(rows, means, sums, low, high);
}

template <class Id>
std::span<const Id> span_of(const char* name, const Vector<const Id>& ids, std::size_t size) {
    return {checked(name, ids, size), size};
}

template <class Id>
std::int64_t count(Vector<const Id> sources, Vector<const Id> targets, std::int64_t num_nodes,
                   int shift, Vector<std::int64_t> counts) {
    const std::size_t edges = sources.size();
    if (shift < 0 || shift > 31) refuse("'shift' must be from 0 to 31");
    const auto buckets =
        static_cast<std::size_t>((num_nodes + (std::int64_t{1} << shift) - 1) >> shift);
    const std::span<std::int64_t> made{checked("counts", counts, buckets), counts.size()};
    const auto from = span_of("sources", sources, edges), to = span_of("targets", targets, edges);
    nb::gil_scoped_release release;
    return count_buckets(from, to, num_nodes, shift, made);
}

// Places are those that `count` found for these edges, so that every edge has one.
template <class Id>
void fill(Vector<const Id> sources, Vector<const Id> targets, int shift,
          Vector<std::int64_t> places, Matrix<std::int32_t> out) {
    const std::size_t edges = sources.size();
    if (out.shape(0) != edges || out.shape(1) != 2) refuse("'out' must be [edges, 2]");
    auto* made = reinterpret_cast<BucketEdge*>(checked("out", out, out.size()));
    const std::span<std::int64_t> begins{places.data(), places.size()};
    const auto from = span_of("sources", sources, edges), to = span_of("targets", targets, edges);
    for (const auto place : begins) {
        if (place < 0 || place > static_cast<std::int64_t>(edges)) refuse("'places' do not fit");
    }
    nb::gil_scoped_release release;
    fill_buckets(from, to, shift, begins, made);
}

std::int64_t sort(Matrix<const std::int32_t> edges, Vector<std::int64_t> offsets,
                  Vector<std::int32_t> ids, bool merges) {
    if (edges.shape(1) != 2 || offsets.size() == 0) refuse("'edges' must be [edges, 2]");
    const std::size_t size = edges.shape(0), rows = offsets.size() - 1;
    const auto* from = reinterpret_cast<const BucketEdge*>(checked("edges", edges, edges.size()));
    const std::span<std::int64_t> made{checked("offsets", offsets, rows + 1), rows + 1};
    std::int32_t* sorted = checked("ids", ids, size);
    nb::gil_scoped_release release;
    const std::span<const BucketEdge> given{from, size};
    for (const BucketEdge& edge : given) {
        if (edge.target >= rows)
            throw std::invalid_argument("a bucket has a target beyond its rows");
    }
    return sort_bucket(given, made, sorted, merges);
}

void check_rows(const SyntheticGraph& graph, std::size_t begin, std::size_t end) {
    if (begin > end || end > graph.num_nodes) refuse("there are no such nodes");
}

SyntheticGraph synthetic(std::uint64_t seed, std::uint64_t num_nodes, std::uint64_t num_classes,
                         std::uint64_t multiplier, std::uint64_t inverse, std::uint64_t shift,
                         double mean_degree, std::int64_t most_neighbours,
                         std::uint64_t own_class_share, float strength) {
    const bool fits = num_nodes > 0 && num_nodes < (std::uint64_t{1} << 31) && num_classes > 0 &&
                      num_classes <= num_nodes && num_classes < 32768 && multiplier < num_nodes &&
                      inverse < num_nodes && shift < num_nodes && most_neighbours >= 0 &&
                      multiplier * inverse % num_nodes == 1 % num_nodes;
    if (!fits) refuse("there is no such synthetic graph");
    return {seed,  num_nodes,   num_classes,     multiplier,      inverse,
            shift, mean_degree, most_neighbours, own_class_share, strength};
}

void bind_synthetic(nb::module_& m) {
    nb::class_<SyntheticGraph>(m, "SyntheticGraph")
        .def(nb::new_(&synthetic), nb::arg("seed"), nb::arg("num_nodes"), nb::arg("num_classes"),
             nb::arg("multiplier"), nb::arg("inverse"), nb::arg("shift"), nb::arg("mean_degree"),
             nb::arg("most_neighbours"), nb::arg("own_class_share"), nb::arg("strength"))
        .def(
            "classes",
            [](const SyntheticGraph& graph, std::size_t begin, std::size_t end,
               Vector<std::int16_t> out) {
                check_rows(graph, begin, end);
                std::int16_t* made = checked("out", out, end - begin);
                nb::gil_scoped_release release;
                synthetic_classes(graph, begin, end, made);
            },
            nb::arg("begin"), nb::arg("end"), nb::arg("out").noconvert())
        .def(
            "degrees",
            [](const SyntheticGraph& graph, std::size_t begin, std::size_t end,
               Vector<std::int64_t> offsets) {
                check_rows(graph, begin, end);
                std::int64_t* made = checked("offsets", offsets, end - begin + 1);
                nb::gil_scoped_release release;
                synthetic_degrees(graph, begin, end, made);
            },
            nb::arg("begin"), nb::arg("end"), nb::arg("offsets").noconvert())
        .def(
            "neighbours",
            [](const SyntheticGraph& graph, std::size_t begin, std::size_t end,
               Vector<std::int64_t> offsets, Vector<std::int32_t> ids) {
                check_rows(graph, begin, end);
                std::int64_t* rows = checked("offsets", offsets, end - begin + 1);
                std::int32_t* made =
                    checked("ids", ids, static_cast<std::size_t>(rows[end - begin]));
                for (std::size_t r = 0; r < end - begin; ++r) {
                    if (rows[r] < 0 || rows[r] > rows[r + 1]) refuse("'offsets' do not rise");
                }
                nb::gil_scoped_release release;
                return synthetic_neighbours(graph, begin, end, rows, made);
            },
            nb::arg("begin"), nb::arg("end"), nb::arg("offsets").noconvert(),
            nb::arg("ids").noconvert())
        .def(
            "features",
            [](const SyntheticGraph& graph, std::size_t begin, std::size_t end, Matrix<float> x) {
                check_rows(graph, begin, end);
                if (x.shape(0) != end - begin) refuse("'x' must have a row per node");
                float* made = checked("x", x, x.size());
                nb::gil_scoped_release release;
                synthetic_features(graph, begin, end, x.shape(1), made);
            },
            nb::arg("begin"), nb::arg("end"), nb::arg("x").noconvert());
}

template <class Id>
void bind_buckets(nb::module_& m) {
    m.def("count_buckets", &count<Id>, nb::arg("sources").noconvert(),
          nb::arg("targets").noconvert(), nb::arg("num_nodes"), nb::arg("shift"),
          nb::arg("counts").noconvert());
    m.def("fill_buckets", &fill<Id>, nb::arg("sources").noconvert(), nb::arg("targets").noconvert(),
          nb::arg("shift"), nb::arg("places").noconvert(), nb::arg("out").noconvert());
}

}  // namespace

void bind_store(nb::module_& m) {
    m.attr("statistics_rows") = statistics_rows;
    m.def("unsound_row", &unsound_row, nb::arg("x").noconvert());
    m.def("pack_features", &pack, nb::arg("x").noconvert(), nb::arg("normalizes_rows"),
          nb::arg("mean").noconvert().none(), nb::arg("scale").noconvert().none(),
          nb::arg("words").noconvert(), nb::arg("beta").noconvert(), nb::arg("isa"));
    m.def("feature_statistics", &statistics, nb::arg("x").noconvert(), nb::arg("normalizes_rows"),
          nb::arg("mean").noconvert(), nb::arg("squares").noconvert(), nb::arg("least").noconvert(),
          nb::arg("largest").noconvert());
    bind_buckets<std::int32_t>(m);
    bind_buckets<std::int64_t>(m);
    m.def("sort_bucket", &sort, nb::arg("edges").noconvert(), nb::arg("offsets").noconvert(),
          nb::arg("ids").noconvert(), nb::arg("merges"));
    bind_synthetic(m);
}

}  // namespace bignn
