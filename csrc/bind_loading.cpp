// Packing, reading and checksums of weights for engine.native._cpu, which engine/device/cpu/ calls
// while a model loads.
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "bind.h"
#include "bind_memory.h"
#include "cpu/linear.h"
#include "layout.h"
#include "loading.h"

namespace nb = nanobind;

namespace soliton::bindings {
namespace {

// The row and column of the first weight, or of a block's first, that is not finite; row -1 means
// that all are finite.
std::tuple<int64_t, int64_t> pack(uintptr_t rows, SourceType source, int64_t n_in, Layout layout,
                                  bool is_woven, uintptr_t panels, int64_t n_panels,
                                  int64_t begin_panel, int64_t end_panel, uintptr_t importance) {
    const PackArgs args = {
        .rows = at<const int64_t>(rows),
        .source = source,
        .n_in = n_in,
        .layout = layout,
        .is_woven = is_woven,
        .panels = at<void>(panels),
        .n_panels = n_panels,
        .begin_panel = begin_panel,
        .end_panel = end_panel,
        .importance = at<const float>(importance),
    };
    const nb::gil_scoped_release unlocked;
    const WeightIndex bad = pack_on_all_threads(args);
    return {bad.row, bad.column};
}

uint64_t checksum(uintptr_t bytes, int64_t n_bytes) {
    const nb::gil_scoped_release unlocked;
    return checksum_on_all_threads(at<const std::byte>(bytes), n_bytes);
}

std::tuple<int, uint64_t> read(int file, int64_t begin, uintptr_t bytes, int64_t n_bytes) {
    const nb::gil_scoped_release unlocked;
    const FileBytes found = read_on_all_threads(file, begin, at<std::byte>(bytes), n_bytes);
    return {found.error, found.checksum};
}

void touch(uintptr_t rows, int64_t n_rows, int64_t pitch, int64_t n_bytes) {
    const nb::gil_scoped_release unlocked;
    touch_pages(at<std::byte>(rows), n_rows, pitch, n_bytes);
}

}  // namespace

void bind_loading(nb::module_& module) {
    using namespace nb::literals;
    module.attr("LAYOUT_VERSION") = kLayoutVersion;

    nb::enum_<Layout>(module, "Layout")
        .value("F32", Layout::kF32)
        .value("BF16", Layout::kBf16)
        .value("Q8", Layout::kQ8)
        .value("Q6", Layout::kQ6)
        .value("Q5", Layout::kQ5)
        .value("Q4", Layout::kQ4)
        .value("Q4_0", Layout::kQ4_0)
        .value("Q5_0", Layout::kQ5_0)
        .value("Q2_K", Layout::kQ2_K)
        .value("Q4_K", Layout::kQ4_K)
        .value("Q5_K", Layout::kQ5_K)
        .value("Q6_K", Layout::kQ6_K)
        .value("IQ4_NL", Layout::kIq4Nl)
        .value("IQ4_XS", Layout::kIq4Xs)
        .value("MXFP4", Layout::kMxfp4);
    nb::enum_<SourceType>(module, "SourceType")
        .value("F32", SourceType::kF32)
        .value("F16", SourceType::kF16)
        .value("BF16", SourceType::kBf16)
        .value("Q4_0", SourceType::kQ4_0)
        .value("Q4_1", SourceType::kQ4_1)
        .value("Q5_0", SourceType::kQ5_0)
        .value("Q5_1", SourceType::kQ5_1)
        .value("Q8_0", SourceType::kQ8_0)
        .value("Q2_K", SourceType::kQ2_K)
        .value("Q3_K", SourceType::kQ3_K)
        .value("Q4_K", SourceType::kQ4_K)
        .value("Q5_K", SourceType::kQ5_K)
        .value("Q6_K", SourceType::kQ6_K)
        .value("IQ4_NL", SourceType::kIq4Nl)
        .value("IQ4_XS", SourceType::kIq4Xs)
        .value("MXFP4", SourceType::kMxfp4);
    module.def("pack", &pack, nb::kw_only(), "rows"_a, "source"_a, "n_in"_a, "layout"_a,
               "is_woven"_a, "panels"_a, "n_panels"_a, "begin_panel"_a, "end_panel"_a,
               "importance"_a);
    module.def("checksum", &checksum, "bytes"_a, "n_bytes"_a);
    module.attr("FILE_ENDS") = kFileEnds;
    module.def("touch", &touch, "rows"_a, "n_rows"_a, "pitch"_a, "n_bytes"_a);
    module.def("read", &read, "file"_a, "begin"_a, "bytes"_a, "n_bytes"_a);
}

}  // namespace soliton::bindings
