#include "kit/optimizer/types.h"

#include "base/format.h"
#include "kit/host.h"
#include "kit/object.h"
#include "kit/optimizer/engine.h"

namespace gannet::kit {

std::vector<ProblemTypes> supported_types(const Subject& subject, bool is_strict) {
  const plugin::Plugin& plugin = *subject.plugin;
  const auto* api = interfaces::api_of<gannet_optimizer_api>(plugin);
  const Host host;
  const auto params = subject.parsed();
  CallOutcome outcome;
  const PluginObject object(plugin, params.view(), host.table(), outcome);
  require_ok("create", outcome);
  gannet_optimizer_context context{};
  context.struct_size = sizeof(context);
  context.world_size = context.group_count = 1;
  gannet_optimizer_description description{};
  description.struct_size = sizeof(description);
  require_ok("describe", call("describe", plugin, api->describe, object.self(), &context, &description));
  std::vector<ProblemTypes> found;
  for (const gannet_dtype param : {GANNET_FLOAT32, GANNET_FLOAT64, GANNET_BFLOAT16, GANNET_FLOAT16})
    for (const gannet_dtype grad : {GANNET_FLOAT32, GANNET_FLOAT64, GANNET_BFLOAT16, GANNET_FLOAT16})
      for (const gannet_dtype out : {GANNET_DTYPE_NONE, GANNET_BFLOAT16, GANNET_FLOAT16, GANNET_FLOAT32, GANNET_FLOAT64}) {
        const ProblemTypes types{param, grad, out};
        set_config(text_of(types));
        const auto ask = [&] {
          return call("supports", plugin, api->supports, object.self(), static_cast<uint32_t>(param), static_cast<uint32_t>(grad),
                      static_cast<uint32_t>(out));
        };
        const CallOutcome first = ask();
        if (is_strict) {
          require_explained("supports", first);
          if (ask().status != first.status)
            throw CheckFailure("supports gives another answer when it is asked again", text_of(types));
          if (!first.ok() && first.status != GANNET_UNSUPPORTED)
            throw CheckFailure(formatted("supports returned status {}: {}", first.status, first.message), text_of(types),
                               "GANNET_OK, or GANNET_UNSUPPORTED with a sentence");
        }
        if (first.ok()) found.push_back(types);
      }
  return found;
}

ProblemTypes usual_types(const Subject& subject) {
  if (!works_on_host(*subject.plugin))
    throw SkippedCheck(
        formatted("it works on memory of the device '{}', and the kit has host memory alone", subject.plugin->device()));
  const auto all = supported_types(subject);
  if (all.empty()) throw CheckFailure("supports refuses every combination of types", "supports");
  return all.front();
}

}  // namespace gannet::kit
