#include "base/format.h"

#include <fmt/args.h>
#include <fmt/format.h>

namespace gannet {

std::string format_all(std::string_view pattern, std::span<const FormatArgument> values) {
  fmt::dynamic_format_arg_store<fmt::format_context> store;
  for (const FormatArgument& value : values) switch (value.kind) {
      case FormatArgument::Kind::kSigned:
        store.push_back(value.integer);
        break;
      case FormatArgument::Kind::kUnsigned:
        store.push_back(value.natural);
        break;
      case FormatArgument::Kind::kReal:
        store.push_back(value.real);
        break;
      case FormatArgument::Kind::kBoolean:
        store.push_back(value.is_true);
        break;
      case FormatArgument::Kind::kLetter:
        store.push_back(value.letter);
        break;
      case FormatArgument::Kind::kText:
        store.push_back(std::cref(value.text));
        break;
    }
  return fmt::vformat(pattern, store);
}

}  // namespace gannet
