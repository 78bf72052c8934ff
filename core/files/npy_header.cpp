#include "files/npy_header.h"

#include <gannet/error.h>

#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

#include "base/format.h"
#include "base/text.h"

namespace gannet::files {
namespace {

// NumPy's type codes of the dtypes that LibTorch also has.
constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
    {"b1", at::kBool},  {"u1", at::kByte},   {"u2", at::kUInt16},       {"i1", at::kChar},
    {"i2", at::kShort}, {"i4", at::kInt},    {"i8", at::kLong},         {"f2", at::kHalf},
    {"f4", at::kFloat}, {"f8", at::kDouble}, {"c8", at::kComplexFloat}, {"c16", at::kComplexDouble}};

// Python's literal of a dictionary, as numpy writes it: three keys in any order.
class Header {
 public:
  Header(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  NpyHeader read() {
    std::string type;
    bool has_shape = false, is_fortran = false, has_order = false;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && type.empty()) {
        if (peek() != '\'') fail_with_type("a record");
        type = quoted();
      } else if (key == "fortran_order" && !has_order) {
        has_order = true;
        is_fortran = boolean();
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        header_.shape = numbers();
      } else {
        fail(formatted("the key '{}'", key));
      }
      if (!take(',') && peek() != '}') fail("no comma between two keys");
    }
    if (type.empty() || !has_shape || !has_order) fail("no 'descr', 'fortran_order' or 'shape'");
    header_.dtype = dtype_of(type);
    if (is_fortran && header_.shape.size() > 1)
      throw Error(ErrorCode::kUnsupported, formatted("{}: the array is in Fortran's order", path_), kSaveArrayAgain);
    return std::move(header_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kCorrupt, formatted("{}: its header has {}", path_, what), kSaveArrayAgain);
  }
  [[noreturn]] void fail_with_type(const std::string& type) const {
    throw Error(
        ErrorCode::kUnsupported, formatted("{}: its elements are {}, for which there is no dtype", path_, type),
        "save it as a dtype that LibTorch also has: array.astype(numpy.int64), or bool, uint8, uint16, int8 to int64, float16 to "
        "float64");
  }
  at::ScalarType dtype_of(const std::string& type) const {
    const std::string_view kind = std::string_view(type).substr(type.empty() ? 0 : 1);
    for (const auto& [name, dtype] : kTypes)
      if (kind == name) {
        if (type[0] == '>')
          throw Error(ErrorCode::kUnsupported, formatted("{}: its elements are in big-endian order ('{}')", path_, type),
                      formatted("save it with array.astype('<{}')", name));
        if (type[0] == '<' || type[0] == '|' || type[0] == '=') return dtype;
      }
    fail_with_type("of type '" + type + "'");
  }

  char peek() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail(formatted("no '{}' where one belongs", std::string(1, wanted)));
  }
  std::string quoted() {
    expect('\'');
    const size_t end = text_.find('\'', at_);
    if (end == std::string_view::npos) fail("a text without an end");
    const std::string text(text_.substr(at_, end - at_));
    at_ = end + 1;
    return printable(text);
  }
  bool boolean() {
    peek();
    for (const auto& [name, value] : {std::pair{"True", true}, {"False", false}})
      if (text_.substr(at_).starts_with(name)) {
        at_ += std::string_view(name).size();
        return value;
      }
    fail("a 'fortran_order' that is neither True nor False");
  }
  std::vector<int64_t> numbers() {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;  // as bytes of the largest type
    std::vector<int64_t> values;
    int64_t product = 1;
    expect('(');
    while (!take(')')) {
      if (!std::isdigit(static_cast<unsigned char>(peek()))) fail("a 'shape' that is not a list of sizes");
      int64_t value = 0;
      for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
        if (value > (kMost - 9) / 10) fail("a size that no memory has");
        value = value * 10 + (text_[at_] - '0');
      }
      if (value > 0 && product > kMost / value) fail("a size that no memory has");
      product *= value > 0 ? value : 1;
      values.push_back(value);
      if (!take(',') && peek() != ')') fail("a 'shape' that is not a list of sizes");
    }
    return values;
  }

  std::string_view text_;
  const std::string& path_;
  size_t at_ = 0;
  NpyHeader header_;
};

}  // namespace

NpyHeader parse_npy_header(const std::string& text, const std::string& path) { return Header(text, path).read(); }

}  // namespace gannet::files
