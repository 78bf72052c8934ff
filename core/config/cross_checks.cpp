#include "config/cross_checks.h"

#include <gannet/error.h>

#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/text.h"
#include "config/document.h"
#include "config/param_groups.h"
#include "config/precision.h"
#include "config/recomputed_operators.h"

namespace gannet::config {
namespace {

const char* name_of(DType dtype) { return dtype == DType::kFloat16 ? "fp16" : dtype == DType::kBFloat16 ? "bf16" : "fp32"; }

// DeepSpeed's table has int8, but no member of Settings can hold it.
void refuse_int8(const Document& document, const std::string& path) {
  const Value* given = document.find(path);
  if (given && *given == Value("int8"))
    throw Error(ErrorCode::kUnsupported,
                formatted("{}{} = \"int8\": Gannet does not implement this", where(document, path), dotted(path)),
                "write fp32, fp16 or bf16");
}

void check_dynamic_loss_scale(const Fp16& fp16, const Document& document) {
  for (const auto& [path, value] :
       {std::pair("/fp16/loss_scale_window", fp16.loss_scale_window), std::pair("/fp16/hysteresis", fp16.hysteresis),
        std::pair("/fp16/min_loss_scale", fp16.min_loss_scale)}) {
    if (value <= 0)
      throw Error(
          ErrorCode::kConfig,
          formatted("{}{} must be above 0 with a dynamic loss scale, found {}", where(document, path), dotted(path), value),
          "or set a static loss_scale");
  }
}

// Two enabled sections would each choose types for the same operators.
void check_one_autocast(const Settings& settings, const Document& document) {
  std::vector<std::string> enabled;
  if (settings.fp16.enabled) enabled.push_back("/fp16/enabled");
  if (settings.bf16.enabled) enabled.push_back("/bf16/enabled");
  if (settings.torch_autocast.enabled) enabled.push_back("/torch_autocast/enabled");
  if (settings.amp.enabled) enabled.push_back("/amp/enabled");
  if (enabled.size() < 2) return;
  throw Error(ErrorCode::kConfig,
              formatted("{}{} and {} are both true (the former at {})", where(document, enabled[1]), dotted(enabled[1]),
                        dotted(enabled[0]), document.origin_of(enabled[0]).to_string()),
              "keep one: docs/precision.md says which model wants which");
}

}  // namespace

void check_zero(const Settings& settings, const Document& document) {
  const auto refuse = [&](const char* path, const std::string& what, const std::string& next) {
    throw Error(ErrorCode::kUnsupported, where(document, path) + what, next);
  };
  const int64_t stage = settings.zero.stage;
  if (stage > 0) {
    if (stage < 3 && settings.zero.offload_param.device != "none")
      refuse("/zero_optimization/offload_param/device",
             formatted("offload_param belongs to ZeRO stage 3, and the stage is {}", stage), "leave it out");
    if (const Value* zenflow = document.find("/zero_optimization/zenflow"); zenflow && zenflow->is_dict())
      refuse("/zero_optimization/zenflow", "ZenFlow is not done by Gannet", "leave zenflow out");
  }
  const Value* ratio = document.find("/zero_optimization/offload_optimizer/ratio");
  if (ratio && ratio->is_number() && ratio->as_number() < 1 && stage < 3)
    throw Error(ErrorCode::kConfig,
                formatted("{}offload_optimizer.ratio below 1 belongs to ZeRO stage 3, and the stage is {}",
                          where(document, "/zero_optimization/offload_optimizer/ratio"), stage),
                "leave ratio out");
}

void check_masters(const Settings& settings, const Document& document) {
  const char* const states = "/bf16/bf16_optimizer_states";
  if (settings.bf16.bf16_states && !settings.bf16.without_masters)
    throw Error(
        ErrorCode::kUnsupported,
        formatted("{}{} is true beside fp32 masters: Gannet does not implement this", where(document, states), dotted(states)),
        "also set bf16.bf16_master_weights_and_grads to true, with the optimizer AdamWBF16; or leave the key out");
  if (!settings.bf16.without_masters) return;
  const char* const key = "/bf16/bf16_master_weights_and_grads";
  if (!settings.bf16.enabled)
    throw Error(ErrorCode::kConfig, formatted("{}{} is true, and bf16 is not enabled", where(document, key), dotted(key)),
                "set bf16.enabled to true, or leave the key out");
  if (settings.ema.decay)
    throw Error(ErrorCode::kUnsupported,
                formatted("{}{} and gannet.ema are both on: an average in bf16 would lose nearly every step",
                          where(document, key), dotted(key)),
                "leave one of them out");
}

void check_precision(const Settings& settings, const Document& document) {
  check_masters(settings, document);
  refuse_int8(document, "/data_types/grad_accum_dtype");
  refuse_int8(document, "/data_types/buffer_dtype");
  if (settings.fp16.enabled && settings.bf16.enabled)
    throw Error(ErrorCode::kConfig,
                formatted("{}bf16 and fp16 are both enabled (fp16 at {})", where(document, "/bf16/enabled"),
                          document.origin_of("/fp16/enabled").to_string()),
                "a model has one of the two types: set the other's enabled to false");
  check_one_autocast(settings, document);
  if (settings.torch_autocast.enabled && settings.torch_autocast.dtype == DType::kFloat32)
    throw Error(ErrorCode::kConfig, formatted("{}torch_autocast.dtype is fp32", where(document, "/torch_autocast/dtype")),
                "write fp16 or bf16, or leave the section out to train in fp32");
  const Precision precision = precision_of(settings, /*on_cpu=*/true);
  const DType model = precision.model.value_or(DType::kFloat32);
  refuse_int8(document, "/data_types/param_dtype");
  if (settings.param_dtype && *settings.param_dtype != model)
    throw Error(ErrorCode::kConfig,
                formatted("{}data_types.param_dtype is {}, but fp16, bf16 and amp say {}",
                          where(document, "/data_types/param_dtype"), name_of(*settings.param_dtype), name_of(model)),
                "leave param_dtype out, or enable that type");
  const auto accumulation = settings.grad_accum_dtype;
  if (accumulation && *accumulation != model && *accumulation != DType::kFloat32)
    throw Error(ErrorCode::kUnsupported,
                formatted("{}data_types.grad_accum_dtype is {} for a model in {}",
                          where(document, "/data_types/grad_accum_dtype"), name_of(*accumulation), name_of(model)),
                "gradients are added up in the model's type or in fp32");
  // On a GPU, autocast may use fp16 where it uses bf16 on the CPU.
  if (precision_of(settings, /*on_cpu=*/false).is_scale_dynamic) check_dynamic_loss_scale(settings.fp16, document);
}

void check_param_groups(const Settings& settings, const Document& document, const EffectiveValues& values) {
  const auto groups =
      param_groups_of(settings.optimizer.param_groups, [&](const std::string& path) { return where(document, path); });
  if (!groups.empty() && settings.optimizer.type.empty() && settings.optimizer.params.empty() &&
      !values.is_unresolved("/optimizer/type"))
    throw Error(ErrorCode::kConfig,
                formatted("{}optimizer has param_groups and no type", where(document, "/optimizer/param_groups")),
                "name the plugin: \"type\": \"AdamW\"");
}

void check_ema(const Settings& settings, const Document& document) {
  if (settings.ema.decay && *settings.ema.decay == 1)
    throw Error(ErrorCode::kConfig,
                formatted("{}gannet.ema.decay is 1: the average would never move", where(document, "/gannet/ema/decay")),
                "give a decay below 1: 0.999");
  if (!settings.ema.decay && (settings.ema.warmup || settings.ema.update_after_step > 0))
    throw Error(ErrorCode::kConfig,
                formatted("{}gannet.ema has no decay, so that no average is kept", where(document, "/gannet/ema")),
                "give one: \"ema\": {\"decay\": 0.999}");
}

void check_trace(const Settings& settings, const Document& document) {
  if (!settings.trace.path.empty() && settings.trace.last_step < settings.trace.first_step)
    throw Error(ErrorCode::kConfig,
                formatted("{}gannet.trace.last_step is {}, before first_step, which is {}",
                          where(document, "/gannet/trace/last_step"), settings.trace.last_step, settings.trace.first_step),
                "give the last step that is to be traced, counted from 1");
}

void check_activations(const ActivationCheckpointing& settings, const Document& document) {
  if (settings.contiguous_memory_optimization && !settings.number_checkpoints)
    throw Error(ErrorCode::kConfig,
                formatted("{}activation_checkpointing.contiguous_memory_optimization is set, and number_checkpoints is not: the "
                          "buffers have no size",
                          where(document, "/activation_checkpointing/contiguous_memory_optimization")),
                "set number_checkpoints to the number of regions in the model");
  if (settings.keep == kKeepOnDevice) return;
  const std::string section = "/activation_checkpointing/", own = "/gannet/activation_checkpointing/";
  for (const auto& [key, is_given] :
       {std::pair(own + "recompute", !settings.recompute.empty()), std::pair(own + "interval", settings.interval.has_value()),
        std::pair(own + "memory_limit", settings.memory_limit.has_value()),
        std::pair(section + "number_checkpoints", settings.number_checkpoints.has_value()),
        std::pair(section + "cpu_checkpointing", settings.cpu_checkpointing),
        std::pair(section + "partition_activations", settings.partition_activations)})
    if (is_given)
      throw Error(ErrorCode::kConfig,
                  formatted("{}gannet.activation_checkpointing.keep is '{}', so that nothing is recomputed, and {} asks for "
                            "regions that are computed again",
                            where(document, "/gannet/activation_checkpointing/keep"), printable(settings.keep), dotted(key)),
                  "take one of them out: keep has every saved tensor on the tier, the other computes them again");
}

void check_recompute(const ActivationCheckpointing& settings, size_t n, const Document& document) {
  static_cast<void>(recomputed_operator(settings.recompute[n], where(document, "/gannet/activation_checkpointing/recompute")));
}

void check_has_type(const PluginChoice& choice, const std::string& block, const Document& document,
                    const EffectiveValues& values) {
  if (choice.type.empty() && !choice.params.empty() && !values.is_unresolved(formatted("/{}/type", block)))
    throw Error(ErrorCode::kConfig, formatted("{}{} has params and no type", where(document, formatted("/{}", block)), block),
                std::string("name the plugin: \"type\": ") + (block == "optimizer" ? "\"AdamW\"" : "\"WarmupLR\""));
}

}  // namespace gannet::config
