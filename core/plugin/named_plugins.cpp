#include "plugin/named_plugins.h"

#include <gannet/error.h>

#include "base/format.h"
#include "config/other_types.h"
#include "plugin/schema.h"

namespace gannet {

plugin::Registry::Options plugin_places(const config::Settings& settings) {
  return {
      .explicit_paths = settings.plugin_paths, .allowed_paths = settings.plugins_allowed, .trusted = settings.plugins_trusted};
}

std::function<std::string(const std::string& member)> position_in(const config::Document& document, const std::string& block) {
  return [&document, block](const std::string& member) {
    return document.origin_of(formatted("/{}/params{}", block, member.empty() ? "" : formatted("/{}", member))).to_string();
  };
}

const plugin::Plugin& require(plugin::Registry& registry, gannet_kind kind, const std::string& type, const std::string& device,
                              const config::Document& document, const std::string& block, const char* key) {
  try {
    return registry.require(kind, type, device);
  } catch (const Error& error) {
    // If the name comes from another library, the hint for that name helps more than the list of
    // available plugins.
    const std::string hint = error.message().starts_with("there is no ") ? config::hint_of_type(block, type) : "";
    throw Error(error.code(),
                formatted("{}: {}", document.origin_of(formatted("/{}/{}", block, key)).to_string(), error.message()),
                hint.empty() ? error.next_step() : hint);
  }
}

Dict known_params(const plugin::Plugin& plugin, const Dict& given) {
  Dict params;
  for (const auto& [key, value] : given.entries())
    for (const auto* spec : plugin::specs_of(*plugin.descriptor))
      if (key == spec->name) params[key] = value;
  return params;
}

std::function<std::string(const std::string& member)> position_in_offload(const config::Document& document,
                                                                          const std::string& block) {
  return [&document, place = formatted("/{}", block)](const std::string& member) {
    const std::string path = place + (member.empty() ? "" : formatted("/{}", member));
    return document
        .origin_of(document.find(path)                           ? path
                   : document.find(formatted("/aio/{}", member)) ? formatted("/aio/{}", member)
                                                                 : place)
        .to_string();
  };
}

}  // namespace gannet
