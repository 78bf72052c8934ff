// gannet checkpoint show FILE.pt: prints the contents of a PyTorch file as a tree. Reads the
// pickle but no tensors.
#include <c10/core/ScalarType.h>
#include <gannet/value.h>

#include <algorithm>
#include <iostream>

#include "base/format.h"
#include "base/text.h"
#include "cli/commands.h"
#include "files/bytes.h"
#include "files/io.h"
#include "files/pt_file.h"

namespace gannet::cli {
namespace {

using files::Object;
using Kind = Object::Kind;

constexpr int kMostLines = 20'000;  // shared branches can be visited any number of times
constexpr size_t kMostItems = 8;

bool is_plain(const Object& object) { return object.items.empty() && object.entries.empty() && object.kind != Kind::kTensor; }

std::string number_text(double number) { return Value(number).to_json(); }

std::string line_of(const Object& object) {
  switch (object.kind) {
    case Kind::kBool:
      return object.boolean ? "True" : "False";
    case Kind::kInt:
      return std::to_string(object.integer);
    case Kind::kNumber:
      return number_text(object.number);
    case Kind::kString:
      return files::shown(object.text);
    case Kind::kBytes:
      return formatted("{} bytes", object.text.size());
    case Kind::kTensor:
    case Kind::kStorage:
      return formatted("{}{} {}",
                       object.kind == Kind::kStorage ? "storage "
                       : object.tensor.is_parameter  ? "parameter "
                                                     : "tensor ",
                       c10::toString(object.tensor.dtype), shape_text(object.tensor.sizes));
    case Kind::kRecord:
      return object.text;
    case Kind::kNone:
      return "None";
    default:
      return object.kind_name() + std::string(" of ") +
             std::to_string(object.kind == Kind::kDict ? object.entries.size() : object.items.size());
  }
}

class Printer {
 public:
  // Returns false if the output was cut short at kMostLines.
  bool print(const std::string& name, const Object& object, size_t indent) {
    if (++lines_ > kMostLines) return false;
    std::cout << std::string(2 * indent, ' ') << name << (name.empty() ? "" : ": ") << line_of(object);
    const bool on_line = std::all_of(object.items.begin(), object.items.end(), [](const auto& item) { return is_plain(*item); });
    if (on_line && !object.items.empty()) {
      std::cout << " (";
      for (size_t i = 0; i < std::min(object.items.size(), kMostItems); ++i)
        std::cout << (i ? ", " : "") << line_of(*object.items[i]);
      std::cout << (object.items.size() > kMostItems ? ", ...)" : ")");
    }
    std::cout << '\n';
    bool all = true;
    if (!on_line)
      for (size_t i = 0; i < object.items.size() && all; ++i) all = print(formatted("[{}]", i), *object.items[i], indent + 1);
    for (const auto& [key, value] : object.entries)
      all = all && print(key->kind == Kind::kString ? printable(key->text) : line_of(*key), *value, indent + 1);
    return all;
  }

 private:
  static std::string printable(const std::string& key) {
    const std::string quoted = files::shown(key);
    return quoted.substr(1, quoted.size() - 2);
  }
  int lines_ = 0;
};

}  // namespace

void show_pt(const std::string& path) {
  const files::PtFile file = files::PtFile::open(path);
  std::cout << path << ", " << size_text(files::kind_of(path).bytes) << "\n\n";
  if (!Printer().print("", file.root(), 0)) std::cout << "... and more: " << kMostLines << " lines are shown\n";
}

}  // namespace gannet::cli
