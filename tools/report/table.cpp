#include "report/table.h"

#include <algorithm>

#include "report/format.h"

namespace gannet::report {
namespace {

std::string inner_html(const Cell& cell) {
  return (cell.chip < 0 ? "" : "<i class=\"chip c" + std::to_string(cell.chip) + "\"></i>") + html_text(cell.text) +
         (cell.detail.empty() ? "" : "<small>" + html_text(cell.detail) + "</small>");
}

// The digits of "1,234", or "" for a cell that is not a step.
std::string step_digits(std::string text) {
  std::erase(text, ',');
  const bool is_step = !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  return is_step ? text : "";
}

}  // namespace

void Table::add(const std::vector<Cell>& cells, const std::string& classes) {
  std::string row, row_step;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string& head = heads_[i].text;
    const std::string step = head == "#step" || head == "#at step" ? step_digits(cells[i].text) : "";
    row += head[0] == '#' ? "<td class=\"number\">" : "<td>";
    if (step.empty()) {
      row += inner_html(cells[i]) + "</td>";
      continue;
    }
    row_step = step;
    row += "<button type=\"button\" data-step=\"" + step + "\">" + inner_html(cells[i]) + "</button></td>";
  }
  html_ += "<tr" + (classes.empty() ? "" : " class=\"" + classes + "\"") +
           (row_step.empty() ? "" : " data-step=\"" + row_step + "\"") + ">" + row + "</tr>\n";
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
