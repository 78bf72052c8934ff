// What a swap of the optimizer kept, filled and dropped, as a text for the log.
#include <gannet/engine.h>

#include "base/format.h"
#include "base/text.h"

namespace gannet {

std::string SwapReceipt::to_string() const {
  std::string text = formatted("optimizer {} in place of {}", to, from);
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {
      {"kept", &kept}, {"filled with the initial value", &filled}, {"dropped", &dropped}};
  for (const auto& [what, names] : lists)
    if (!names->empty()) text += formatted("; {}: {}", what, join(*names, ", "));
  for (const auto& line : notes) text += formatted("\n  {}", line);
  return text;
}

}  // namespace gannet
