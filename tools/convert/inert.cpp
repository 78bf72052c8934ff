#include "convert/inert.h"

#include "base/format.h"

namespace gannet::convert {
namespace {

constexpr int kMaxDepth = 64;  // a container may contain itself

bool is_utf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const int more = byte < 0x80                   ? 0
                     : byte >= 0xC2 && byte < 0xE0 ? 1
                     : byte >= 0xE0 && byte < 0xF0 ? 2
                     : byte >= 0xF0 && byte < 0xF5 ? 3
                                                   : -1;
    if (more < 0 || i + static_cast<size_t>(more) >= text.size()) return false;
    for (int k = 1; k <= more; ++k)
      if ((static_cast<unsigned char>(text[i + static_cast<size_t>(k)]) & 0xC0) != 0x80) return false;
    if (more == 2 && ((byte == 0xE0 && static_cast<unsigned char>(text[i + 1]) < 0xA0) ||
                      (byte == 0xED && static_cast<unsigned char>(text[i + 1]) >= 0xA0)))
      return false;
    if (more == 3 && ((byte == 0xF0 && static_cast<unsigned char>(text[i + 1]) < 0x90) ||
                      (byte == 0xF4 && static_cast<unsigned char>(text[i + 1]) >= 0x90)))
      return false;
    i += static_cast<size_t>(more) + 1;
  }
  return true;
}

std::optional<Value> convert(const files::Node& node, int depth, std::string& fault) {
  const auto refused = [&](const std::string& what) {
    fault = formatted("{} is {}", node.where(), what);
    return std::optional<Value>();
  };
  if (depth > kMaxDepth) return refused(formatted("nested deeper than {} levels", kMaxDepth));
  const files::Object& object = node.object();
  switch (object.kind) {
    case files::Object::Kind::kNone:
      return Value();
    case files::Object::Kind::kBool:
      return Value(object.boolean);
    case files::Object::Kind::kInt:
      return Value(object.integer);
    case files::Object::Kind::kNumber:
      return Value(object.number);
    case files::Object::Kind::kString:
      return is_utf8(object.text) ? std::optional<Value>(object.text) : refused("a string that is not UTF-8");
    case files::Object::Kind::kList:
    case files::Object::Kind::kTuple: {
      List list;
      for (const files::Node& item : node.items()) {
        auto value = convert(item, depth + 1, fault);
        if (!value) return {};
        list.push_back(std::move(*value));
      }
      return Value(std::move(list));
    }
    case files::Object::Kind::kDict: {
      Dict dict;
      for (const auto& [key, value] : object.entries)
        if (!key || (key->kind != files::Object::Kind::kString && key->kind != files::Object::Kind::kInt) || !is_utf8(key->text))
          return refused("a dict with keys that are not strings");
      for (const auto& [key, member] : node.entries()) {
        auto value = convert(member, depth + 1, fault);
        if (!value) return {};
        dict[key] = std::move(*value);
      }
      return Value(std::move(dict));
    }
    default:
      return refused(object.kind == files::Object::Kind::kRecord ? formatted("an object of class {}", object.text)
                                                                 : object.kind_name());
  }
}

}  // namespace

std::optional<Value> inert(const files::Node& node, std::string& fault) { return convert(node, 0, fault); }

}  // namespace gannet::convert
