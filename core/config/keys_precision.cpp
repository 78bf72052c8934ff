// Rows of the key table: number types and loss scale.
#include "config/row.h"

namespace gannet::config {
namespace {

using enum Type;
using enum Status;

constexpr Key kRows[] = {
    {"fp16", kSection, "{}", kActive, "", "train in fp16 with fp32 master weights"},
    row("fp16/enabled", member<&Settings::fp16, &Fp16::enabled>, kBool, "false", "", "switches the section on"),
    {"fp16/auto_cast", kBool, "false", kUnsupported, "", "cast the inputs of forward to fp16", "casting the inputs"},
    row("fp16/loss_scale", member<&Settings::fp16, &Fp16::loss_scale>, kNumber, "0", ">=0", "static loss scale; 0: dynamic"),
    row("fp16/initial_scale_power", member<&Settings::fp16, &Fp16::initial_scale_power>, kInt, "16", "-126..127",
        "the first dynamic scale is 2 to this power"),
    // The next rows have no range. Only a dynamic scale requires one (see cross_checks.cpp), and
    // configs with a static scale often hold unusable values here.
    row("fp16/loss_scale_window", member<&Settings::fp16, &Fp16::loss_scale_window>, kInt, "1000", "",
        "steps without overflow before the scale doubles; above 0 with a dynamic scale"),
    row("fp16/hysteresis", member<&Settings::fp16, &Fp16::hysteresis>, kInt, "2", "",
        "overflows before the scale is halved; above 0 with a dynamic scale"),
    row("fp16/consecutive_hysteresis", member<&Settings::fp16, &Fp16::consecutive_hysteresis>, kBool, "false", "",
        "a step without overflow refills the hysteresis"),
    row("fp16/min_loss_scale", member<&Settings::fp16, &Fp16::min_loss_scale>, kInt, "1", "",
        "smallest dynamic scale; above 0 with a dynamic scale"),
    {"fp16/fp16_master_weights_and_grads", kBool, "false", kUnsupported, "", "keep master weights and gradients in fp16",
     "fp16 parameters without fp32 masters (bf16 has bf16_master_weights_and_grads)"},

    {"bf16", kSection, "{}", kActive, "", "train in bf16 with fp32 master weights", "", "bfloat16"},
    row("bf16/enabled", member<&Settings::bf16, &Bf16::enabled>, kBool, "false", "", "switches the section on"),
    {"bf16/immediate_grad_update", kBool, "false", kNoEffect, "", "accumulate inside the gradient hooks",
     "Gannet always accumulates inside the gradient hooks"},
    row("bf16/check_grad_overflow", member<&Settings::bf16, &Bf16::check_grad_overflow>, kBool, "true", "",
        "skip a step whose gradient is not finite"),
    row("bf16/bf16_master_weights_and_grads", member<&Settings::bf16, &Bf16::without_masters>, kBool, "false", "",
        "train bf16 parameters without fp32 masters, with an optimizer that takes them: AdamWBF16"),
    row("bf16/bf16_optimizer_states", member<&Settings::bf16, &Bf16::bf16_states>, kBool, "false", "",
        "keep optimizer states in bf16: those of AdamWBF16 are; only with bf16_master_weights_and_grads"),

    {"data_types", kSection, "{}", kActive, "", "types other than the model's"},
    row("data_types/grad_accum_dtype", member<&Settings::grad_accum_dtype>, kDType, "null", "",
        "accumulation type of gradients: the model's or fp32; null: the model's"),
    row("data_types/param_dtype", member<&Settings::param_dtype>, kDType, "null", "",
        "must match the type that fp16 and bf16 select"),
    row("data_types/buffer_dtype", member<&Settings::buffer_dtype>, kDType, "null", "",
        "cast the model's floating-point buffers to this; null: unchanged"),

    {"amp", kSection, "{}", kActive, "",
     "mixed precision by apex's names and levels, through LibTorch's autocast (docs/precision.md)"},
    row("amp/enabled", member<&Settings::amp, &Amp::enabled>, kBool, "false", "", "switches the section on"),
    row("amp/opt_level", member<&Settings::amp, &Amp::opt_level>, kChoice, "\"O1\"", "O0|O1|O2|O3",
        "O0: fp32; O1: autocast in fp16; O2: parameters in fp16, too; O3: parameters in fp16 without a loss scale"),
    {"amp/loss_scale", kAny, "\"dynamic\"", kUnsupported, "", "the loss scale",
     "a loss scale of amp's own (write fp16.loss_scale)"},
    {"amp/min_loss_scale", kAny, "null", kUnsupported, "", "smallest loss scale",
     "a loss scale of amp's own (write fp16.min_loss_scale)"},
    {"amp/max_loss_scale", kNumber, "16777216", kNoEffect, "", "largest loss scale", "the loss scale is the section fp16's"},
    {"amp/keep_batchnorm_fp32", kAny, "null", kUnsupported, "", "leave batch norm in fp32",
     "types by module (O1 leaves all parameters in fp32)"},
    {"amp/cast_model_type", kAny, "null", kUnsupported, "", "type of the parameters", "a type beside opt_level's"},
    {"amp/patch_torch_functions", kAny, "null", kNoEffect, "", "cast the inputs of operators",
     "opt_level says whether they are cast"},
    {"amp/master_weights", kAny, "null", kNoEffect, "", "fp32 masters", "masters are always fp32"},
    {"amp/cast_model_outputs", kAny, "null", kUnsupported, "", "type of what the model returns",
     "casting what the model returns"},
    {"amp/num_losses", kInt, "1", kNoEffect, ">=1", "losses with a scale each", "all losses of a step have one scale"},
    {"amp/verbosity", kInt, "1", kNoEffect, "", "how much apex prints", "`log_level` says what is logged"},
    {"torch_autocast", kSection, "{}", kActive, "", "forward runs under LibTorch's autocast (docs/precision.md)"},
    row("torch_autocast/enabled", member<&Settings::torch_autocast, &TorchAutocast::enabled>, kBool, "false", "",
        "switches the section on"),
    row("torch_autocast/dtype", member<&Settings::torch_autocast, &TorchAutocast::dtype>, kDType, "null", "",
        "the lower precision; null: fp16 on a GPU, bf16 on a CPU"),
    {"torch_autocast/lower_precision_safe_modules", kStrings, "null", kUnsupported, "",
     "classes whose gradients may travel in it", "types of the wire by class (write communication_data_type)"},
};

}  // namespace

std::span<const Key> precision_keys() { return kRows; }

}  // namespace gannet::config
