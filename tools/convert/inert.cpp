#include "convert/inert.h"

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

std::optional<Value> convert(const Node& node, int depth, std::string& fault) {
  const auto refused = [&](const std::string& what) {
    fault = node.where() + " is " + what;
    return std::optional<Value>();
  };
  if (depth > kMaxDepth) return refused("nested deeper than " + std::to_string(kMaxDepth) + " levels");
  const Object& object = node.object();
  switch (object.kind) {
    case Object::Kind::kNone:
      return Value();
    case Object::Kind::kBool:
      return Value(object.boolean);
    case Object::Kind::kInt:
      return Value(object.integer);
    case Object::Kind::kNumber:
      return Value(object.number);
    case Object::Kind::kString:
      return is_utf8(object.text) ? std::optional<Value>(object.text) : refused("a text that is not UTF-8");
    case Object::Kind::kList:
    case Object::Kind::kTuple: {
      List list;
      for (const Node& item : node.items()) {
        auto value = convert(item, depth + 1, fault);
        if (!value) return {};
        list.push_back(std::move(*value));
      }
      return Value(std::move(list));
    }
    case Object::Kind::kDict: {
      Dict dict;
      for (const auto& [key, value] : object.entries)
        if (!key || (key->kind != Object::Kind::kString && key->kind != Object::Kind::kInt) || !is_utf8(key->text))
          return refused("a dict with keys that are not texts");
      for (const auto& [key, member] : node.entries()) {
        auto value = convert(member, depth + 1, fault);
        if (!value) return {};
        dict[key] = std::move(*value);
      }
      return Value(std::move(dict));
    }
    default:
      return refused(object.kind == Object::Kind::kRecord ? "an object of class " + object.text : object.kind_name());
  }
}

}  // namespace

std::optional<Value> inert(const Node& node, std::string& fault) { return convert(node, 0, fault); }

}  // namespace gannet::convert
