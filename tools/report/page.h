// The parts that the page of one run and the page of several share.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "report/charts.h"

namespace gannet::report {

// The page's template with these places filled: title, began, tiles, notes, charts, tables, data.
std::string page_html(std::map<std::string, std::string, std::less<>> values);

std::string section(const std::string& id, const std::string& title, const std::string& inside,
                    const std::string& after_title = "");
std::string notes_html(const std::vector<std::string>& notes);
// The bar with the step under the pointer, the strip, and the charts.
std::string charts_html(const std::string& timeline, const Charts& charts);
std::string small(const std::string& text);  // for a title

}  // namespace gannet::report
