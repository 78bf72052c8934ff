// Reads a schedule from CSV: PyTorch's notation, with or without its cells for communication.
#include <gannet/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "pipeline/schedule.h"

namespace gannet::pipeline {
namespace {

constexpr std::array<std::string_view, 7> kIgnoredCells{"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                                        "UNSHARD", "RESHARD", "REDUCE_GRAD"};
constexpr std::string_view kOverlap = "OVERLAP_F_B";

struct CellPlace {
  const std::string& name;
  size_t row, column;  // from 0; error messages count from 1
  std::string text() const { return formatted("{}: row {}, column {}", name, row + 1, column + 1); }
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\"";
  const size_t first = text.find_first_not_of(kBlanks);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string_view> cells_between(std::string_view text, char separator) {
  std::vector<std::string_view> cells;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    cells.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return cells;
}

[[noreturn]] void refuse_cell(const CellPlace& place, std::string_view cell) {
  throw Error(ErrorCode::kConfig, formatted("{}: '{}' is not a schedule action", place.text(), printable(cell.substr(0, 40))),
              "write part, F, B, I or W, and micro-batch, as 2F0; leave a cell empty for a pause");
}

// Consumes a number of at most nine digits from the front.
std::optional<uint32_t> take_number(std::string_view& text) {
  uint32_t number = 0;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 9) return std::nullopt;
  std::from_chars(text.data(), text.data() + digits, number);
  text.remove_prefix(digits);
  return number;
}

void read_cell(const CellPlace& place, std::string_view cell, std::vector<Action>& row) {
  if (cell.empty()) return;
  std::string_view rest = cell;
  if (const size_t end = rest.find(')'); rest.front() == '(' && end != std::string_view::npos) {
    if (rest.substr(end + 1) != kOverlap) refuse_cell(place, cell);
    for (const std::string_view one : cells_between(rest.substr(1, end - 1), ';')) {
      if (trimmed(one).empty() || trimmed(one).front() == '(') refuse_cell(place, cell);
      read_cell(place, trimmed(one), row);
    }
    return;
  }
  const std::optional<uint32_t> part = take_number(rest);
  if (!part) refuse_cell(place, cell);
  const std::string_view word = rest.substr(0, std::min(rest.find_first_of("0123456789"), rest.size()));
  rest.remove_prefix(word.size());
  const std::optional<uint32_t> micro_batch = take_number(rest);
  if (!rest.empty()) refuse_cell(place, cell);
  if (std::find(kIgnoredCells.begin(), kIgnoredCells.end(), word) != kIgnoredCells.end()) return;
  const size_t kind = std::string_view("FBIW").find(word);
  if (word.size() != 1 || kind == std::string_view::npos || !micro_batch) refuse_cell(place, cell);
  row.push_back({static_cast<Action::Kind>(kind), *part, *micro_batch});
}

}  // namespace

Schedule from_csv(std::string_view text, const std::string& name) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // the byte order mark that spreadsheets write
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  if (text.empty())
    throw Error(ErrorCode::kConfig, formatted("{}: the file of a schedule has no rows", name), "write a row for each rank");
  Schedule schedule;
  std::map<uint32_t, size_t> row_of;  // by part
  for (const std::string_view line : cells_between(text, '\n')) {
    const size_t r = schedule.actions.size();
    std::vector<Action>& row = schedule.actions.emplace_back();
    const std::vector<std::string_view> cells = cells_between(line, ',');
    for (size_t column = 0; column < cells.size(); ++column) {
      const CellPlace place{name, r, column};
      const size_t before = row.size();
      read_cell(place, trimmed(cells[column]), row);
      for (size_t i = before; i < row.size(); ++i) {
        const size_t owner = row_of.emplace(row[i].part, r).first->second;
        if (owner != r)
          throw Error(
              ErrorCode::kConfig,
              formatted("{}: {} is of part {}, which row {} has too", place.text(), to_text(row[i]), row[i].part, owner + 1),
              "each part of the model is on one rank: put its actions in one row");
      }
    }
    if (row.empty())
      throw Error(ErrorCode::kConfig, formatted("{}: row {} has no action, so rank {} would have no part", name, r + 1, r),
                  "give every rank a part, or remove the row");
  }
  for (const auto& [part, r] : row_of) {
    if (part != schedule.rank_of.size())
      throw Error(ErrorCode::kConfig,
                  formatted("{}: there are actions of part {}, and none of part {}", name, part, schedule.rank_of.size()),
                  "number the parts from 0 in the order of the layers, without gaps");
    schedule.rank_of.push_back(static_cast<uint32_t>(r));
  }
  return schedule;
}

Schedule read_csv(const std::string& path) {
  constexpr std::streamsize kMost = 64 << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw Error(ErrorCode::kNotFound, formatted("'{}' is not a readable schedule file", printable(path)),
                "name a CSV file with a row for each rank");
  std::string text(static_cast<size_t>(kMost), '\0');
  file.read(text.data(), kMost);
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.gcount() == kMost)
    throw Error(ErrorCode::kConfig,
                formatted("{}: a schedule has less than {}", printable(path), size_text(static_cast<uint64_t>(kMost))),
                "name a CSV file with a row for each rank");
  return from_csv(text, printable(path));
}

}  // namespace gannet::pipeline
