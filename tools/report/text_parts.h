// Parts common to the terminal texts of one run and of several.
#pragma once

#include <string>

#include "report/series.h"

namespace gannet::report {

// One block per bucket; its height shows the bucket's mean, on a scale from the smallest mean to
// the largest.
std::string sparkline(const Series& series);
// Pads on the right to `width` columns; a non-ASCII character counts as one.
std::string padded(std::string text, size_t width);
size_t columns_of(const std::string& text);
// Replaces control characters, which a terminal would interpret: the file's text is not trusted.
std::string plain(std::string text);

}  // namespace gannet::report
