#include "report/table.h"

#include "report/format.h"

namespace gannet::report {
namespace {

std::string inner_html(const Cell& cell) {
  return (cell.chip < 0 ? "" : "<i class=\"chip c" + std::to_string(cell.chip) + "\"></i>") + html_text(cell.text) +
         (cell.detail.empty() ? "" : "<small>" + html_text(cell.detail) + "</small>");
}

}  // namespace

void Table::add(const std::vector<Cell>& cells, const std::string& classes) {
  html_ += classes.empty() ? "<tr>" : "<tr class=\"" + classes + "\">";
  for (size_t i = 0; i < cells.size(); ++i)
    html_ += (heads_[i].text[0] == '#' ? "<td class=\"number\">" : "<td>") + inner_html(cells[i]) + "</td>";
  html_ += "</tr>\n";
}

void Table::gap(size_t left_out) {
  html_ += "<tr class=\"gap\"><td colspan=\"" + std::to_string(heads_.size()) + "\">" +
           with_commas(static_cast<int64_t>(left_out)) + " rows left out</td></tr>\n";
}

std::string Table::html(const std::string& classes) const {
  std::string head;
  for (Cell one : heads_) {
    const bool is_number = one.text[0] == '#';
    if (is_number) one.text.erase(0, 1);
    head += std::string("<th scope=\"col\"") + (is_number ? " class=\"number\">" : ">") + inner_html(one) + "</th>";
  }
  return "<div class=\"scroll\" tabindex=\"0\"><table" + (classes.empty() ? "" : " class=\"" + classes + "\"") + "><thead><tr>" +
         head + "</tr></thead><tbody>\n" + html_ + "</tbody></table></div>\n";
}

}  // namespace gannet::report
