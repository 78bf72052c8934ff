// A table of the report, as HTML. Text is escaped here.
//
//   Table table({"#step", "why"});       // a heading that begins with '#' is that of a column of numbers
//   table.add({"72", "an inf in 'wte'"});
//   table.html();
//
// The page's script (jump.js) makes each number below "step" or "at step" a button that shows this
// step in the charts.
#pragma once

#include <string>
#include <vector>

namespace gannet::report {

struct Cell {
  Cell(std::string cell_text) : text(std::move(cell_text)) {}  // NOLINT(google-explicit-constructor)
  Cell(const char* cell_text) : text(cell_text) {}             // NOLINT(google-explicit-constructor)
  Cell(std::string cell_text, std::string cell_detail) : text(std::move(cell_text)), detail(std::move(cell_detail)) {}
  std::string text, detail;  // the detail is small, below the text
  int chip = -1;             // a colour of the palette, before the text
};

class Table {
 public:
  explicit Table(std::vector<Cell> heads) : heads_(std::move(heads)) {}
  void add(const std::vector<Cell>& cells, const std::string& classes = "");
  void gap(size_t left_out);  // a row that says how many rows are left out
  bool is_empty() const { return html_.empty(); }
  std::string html(const std::string& classes = "") const;

 private:
  std::vector<Cell> heads_;
  std::string html_;
};

}  // namespace gannet::report
