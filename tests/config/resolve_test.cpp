#include "config/resolve.h"

#include <gmock/gmock.h>

#include <set>

#include "config/keys.h"
#include "expect_error.h"

namespace gannet::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ResolvedConfig resolved(const std::string& text, int64_t world_size = 1) {
  return resolve(*Document::from_text(text, "t.json"), world_size);
}
// The config of 8 samples with `members` added.
ResolvedConfig with(const std::string& members) { return resolved("{\"train_batch_size\": 8, " + members + "}"); }
Error refusal(const std::string& members) {
  return error_of([&] { with(members); });
}
std::string origin_of(const ResolvedConfig& result, const std::string& path) {
  for (const auto& line : result.effective)
    if (line.path == path) return line.origin;
  return "(no such line)";
}

TEST(Resolve, EveryActiveKeyReachesTheSettings) {
  const Settings settings = resolved(R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
    "gradient_clipping": 0.5, "gradient_allreduce_op": "Sum", "prescale_gradients": true, "gradient_predivide_factor": 2, "communication_data_type": "BF16",
    "steps_per_print": 7, "wall_clock_breakdown": "on", "dump_state": 1, "log_level": "DEBUG", "dataloader_drop_last": true,
    "fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 8, "loss_scale_window": 9, "hysteresis": 3, "consecutive_hysteresis": true, "min_loss_scale": 2},
    "bf16": {"check_grad_overflow": false}, "data_types": {"grad_accum_dtype": "float", "buffer_dtype": "half", "param_dtype": "torch.float16"},
    "zero_optimization": {"stage": 0, "reduce_bucket_size": 1e6}, "accelerator": {"type": "cpu", "params": {"a": 1}}, "comm": {"type": "gloo"}, "plugins": {"path": ["p", "q"], "allow": "r"},
    "gannet": {"leftover_micro_batches": "drop", "seed": 11, "shuffle": false, "data_workers": 0, "debug_plugins": true, "total_steps": 70, "ema": {"decay": 0.99, "warmup": true, "update_after_step": 6}, "max_consecutive_skips": 3, "timeout_seconds": 2.5, "deadline_seconds": 1.5,
      "metrics": {"path": "m.jsonl"}, "trace": {"path": "t.json", "first_step": 3, "last_step": 4}},
    "tensorboard": {"enabled": true, "output_path": "logs", "job_name": "run1"}, "csv_monitor": {"enabled": true}})",
                                     2)
                                .settings;
  EXPECT_EQ(settings.train_batch_size, 16);
  EXPECT_EQ(settings.micro_batch_size, 2);
  EXPECT_EQ(settings.accumulation_steps, 4);
  EXPECT_EQ(settings.optimizer.type, "AdamW");
  EXPECT_EQ(settings.optimizer.params.find("lr")->as_number(), 0.1);
  EXPECT_EQ(settings.scheduler.params.find("warmup_num_steps")->as_int(), 5);
  EXPECT_EQ(settings.gradient_clipping, 0.5);
  EXPECT_TRUE(settings.gradient_sum && settings.prescale_gradients);
  EXPECT_EQ(settings.gradient_predivide_factor, 2.0);
  EXPECT_EQ(settings.communication_data_type, DType::kBFloat16);
  EXPECT_EQ(settings.steps_per_print, 7);
  EXPECT_TRUE(settings.wall_clock_breakdown && settings.dump_state && settings.dataloader_drop_last);
  EXPECT_EQ(settings.log_level, "debug");
  EXPECT_TRUE(settings.fp16.enabled && settings.fp16.consecutive_hysteresis);
  EXPECT_EQ(settings.fp16.loss_scale, 128.0);
  EXPECT_EQ(settings.fp16.initial_scale_power, 8);
  EXPECT_EQ(settings.fp16.loss_scale_window, 9);
  EXPECT_EQ(settings.fp16.hysteresis, 3);
  EXPECT_EQ(settings.fp16.min_loss_scale, 2);
  EXPECT_FALSE(settings.bf16.check_grad_overflow);
  EXPECT_EQ(settings.grad_accum_dtype, DType::kFloat32);
  EXPECT_EQ(settings.buffer_dtype, DType::kFloat16);
  EXPECT_EQ(settings.zero.reduce_bucket_size, 1000000);
  EXPECT_EQ(settings.accelerator.type, "cpu");
  EXPECT_EQ(settings.accelerator.params.find("a")->as_int(), 1);
  EXPECT_EQ(settings.comm.type, "gloo");
  EXPECT_THAT(settings.plugin_paths, ElementsAre("p", "q"));
  EXPECT_THAT(settings.plugins_allowed, ElementsAre("r"));
  EXPECT_EQ(settings.metrics_path, "m.jsonl");
  EXPECT_EQ(settings.trace.path, "t.json");
  EXPECT_EQ(settings.trace.first_step + 10 * settings.trace.last_step, 43);
  EXPECT_TRUE(settings.tensorboard.enabled && settings.csv_monitor.enabled);
  EXPECT_EQ(settings.tensorboard.folder(), "logs/run1");
  EXPECT_EQ(settings.csv_monitor.folder(), "DeepSpeedJobName");
  EXPECT_EQ(settings.leftover_micro_batches, "drop");
  EXPECT_EQ(settings.seed, 11);
  EXPECT_FALSE(settings.shuffle);
  EXPECT_EQ(settings.data_workers, 0);
  EXPECT_TRUE(settings.debug_plugins);
  EXPECT_EQ(settings.ema.decay, 0.99);
  EXPECT_TRUE(settings.ema.warmup);
  EXPECT_EQ(settings.ema.update_after_step, 6);
  EXPECT_EQ(settings.total_steps, 70);
  EXPECT_EQ(settings.max_consecutive_skips, 3);
  EXPECT_EQ(settings.timeout_seconds, 2.5);
  EXPECT_EQ(settings.deadline_seconds, 1.5);
}

TEST(Resolve, TheFlopsProfilerIsReadAndSwitchesTheWallClockBreakdownOn) {
  const auto settings =
      with(
          R"("flops_profiler": {"enabled": true, "recompute_fwd_factor": 0.5, "profile_step": 3, "module_depth": 2, "top_modules": 4, "detailed": false,
    "output_file": "report.txt"})")
          .settings;
  const auto& profiler = settings.flops_profiler;
  EXPECT_TRUE(profiler.enabled && !profiler.detailed && settings.wall_clock_breakdown);
  EXPECT_EQ(profiler.recompute_fwd_factor, 0.5);
  EXPECT_EQ(profiler.profile_step, 3);
  EXPECT_EQ(profiler.module_depth, 2);
  EXPECT_EQ(profiler.top_modules, 4);
  EXPECT_EQ(profiler.output_file, "report.txt");
  EXPECT_FALSE(with("").settings.flops_profiler.enabled || with("").settings.wall_clock_breakdown);
}

TEST(Resolve, EveryActiveKeyOfTheTableIsALineOnceWithAnOrigin) {
  const ResolvedConfig result = with(R"("optimizer": {"type": "AdamW", "params": {"lr": 0.1, "eps": 1e-8}})");
  std::set<std::string> paths;
  for (const auto& line : result.effective) {
    EXPECT_TRUE(paths.insert(line.path).second) << line.path;
    EXPECT_FALSE(line.origin.empty()) << line.path;
  }
  EXPECT_TRUE(paths.count("/optimizer/params/lr") && paths.count("/optimizer/params/eps"));
  for (const Key* key : all_keys()) {
    if (is_read(key->status) && !key->is_section() && key->path != "optimizer/params") {
      EXPECT_TRUE(paths.count("/" + std::string(key->path))) << key->path;
    }
  }
}

TEST(Resolve, EveryValueKnowsWhereItCameFrom) {
  const auto file = Document::from_text(
      "{\"train_batch_size\": 16,\n \"train_micro_batch_size_per_gpu\": 4, \"gradient_clipping\": \"auto\", \"fp16\": "
      "{\"hysteresis\": 3, \"enabled\": false}}",
      "t.json");
  const ResolvedConfig result = resolve(*file->merged(Dict{{"steps_per_print", 5}}, "command line"), 2);
  EXPECT_EQ(origin_of(result, "/train_batch_size"), "t.json:1:2");
  EXPECT_EQ(origin_of(result, "/train_micro_batch_size_per_gpu"), "t.json:2:2");
  EXPECT_EQ(origin_of(result, "/gradient_accumulation_steps"),
            "computed from train_batch_size, train_micro_batch_size_per_gpu and world size 2");
  EXPECT_EQ(origin_of(result, "/gradient_clipping"), "auto at t.json:2:39: the default");
  EXPECT_EQ(origin_of(result, "/steps_per_print"), "command line");
  EXPECT_EQ(origin_of(result, "/log_level"), "default");
}

TEST(Resolve, WhatIsEffectiveReadsBackAsTheSameConfig) {
  const ResolvedConfig first =
      with(R"("optimizer": {"type": "AdamW", "params": {"lr": 0.1}}, "bf16": {"enabled": true}, "gannet": {"seed": 3})");
  Dict again;
  for (const auto& line : first.effective) {
    Value* at = nullptr;
    size_t begin = 1;
    for (size_t end; begin <= line.path.size(); begin = end + 1) {
      end = std::min(line.path.find('/', begin), line.path.size());
      const std::string key = line.path.substr(begin, end - begin);
      if (at && !at->is_dict()) *at = Dict();
      at = at ? &at->as_dict()[key] : &again[key];
    }
    *at = line.value;
  }
  const ResolvedConfig second = resolve(*Document::from_dict(again, "code"), 1);
  ASSERT_EQ(first.effective.size(), second.effective.size());
  for (size_t i = 0; i < first.effective.size(); ++i) {
    EXPECT_EQ(first.effective[i].path, second.effective[i].path);
    EXPECT_EQ(first.effective[i].value, second.effective[i].value) << first.effective[i].path;
  }
}

TEST(Resolve, AutoIsTheDefaultWhereThereIsOne) {
  const Settings settings =
      with(
          R"("gradient_clipping": "auto", "fp16": {"enabled": "auto", "loss_scale": "auto"}, "bf16": "auto", "accelerator": {"type": "auto"},
    "zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto", "overlap_comm": "auto"}, "gradient_accumulation_steps": "auto", "steps_per_print": "auto")")
          .settings;
  EXPECT_EQ(settings.gradient_clipping, 1.0);
  EXPECT_FALSE(settings.fp16.enabled || settings.bf16.enabled);
  EXPECT_EQ(settings.zero.reduce_bucket_size, 500000000);
  EXPECT_EQ(settings.accumulation_steps, 1);
  EXPECT_EQ(settings.accelerator.type, "auto");
}

TEST(Resolve, WhatOpensPluginsIsKnownOfAnIncompleteConfig) {
  const Settings settings = settings_of(*Document::from_text(
      R"({"accelerator": {"type": "cpu"}, "comm": {"params": {"b": 2}}, "plugins": {"path": "auto", "allow": "r"},
          "gannet": {"timeout_seconds": 3}, "fp16": {"enabled": true}, "bf16": {"enabled": true}})",
      "t.json"));
  EXPECT_EQ(settings.accelerator.type + " " + settings.comm.type, "cpu auto");
  EXPECT_EQ(settings.comm.params.find("b")->as_int(), 2);
  EXPECT_THAT(settings.plugin_paths, IsEmpty());
  EXPECT_THAT(settings.plugins_allowed, ElementsAre("r"));
  EXPECT_EQ(settings.timeout_seconds, 3.0);
}

TEST(Resolve, AnAutoBatchSizeThatTheOthersDetermineIsAbsent) {
  const Settings settings =
      resolved(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto"})", 2)
          .settings;
  EXPECT_EQ(settings.train_batch_size, 8);
  EXPECT_EQ(resolved(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": "auto"})", 2).settings.micro_batch_size, 4);
}

TEST(Resolve, EveryAutoThatNothingResolvesIsListedInOneError) {
  const Error error = error_of([] {
    resolved(
        R"({"train_batch_size": "auto", "optimizer": {"type": "auto", "params": {"lr": "auto"}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}})");
  });
  for (const char* path :
       {"train_batch_size (t.json:1:2)", "optimizer.type", "optimizer.params.lr", "scheduler.params.warmup_max_lr"})
    EXPECT_THAT(error.message(), HasSubstr(path));
  EXPECT_THAT(error.message(), testing::Not(HasSubstr("micro")));
}

TEST(Resolve, UnsupportedKeysAtTheirDefaultOrSwitchedOffAreLegal) {
  for (const char* members : {
           R"("amp": {"enabled": false, "opt_level": "O2"})",
           R"("amp": {})",
           R"("tensorboard": {"enabled": false, "output_path": "x"})",
           R"("managed_gradient_accumulation": true)",
           R"("fp16": {"enabled": true, "auto_cast": false})",
           R"("fp16": {"enabled": false, "auto_cast": true})",
           R"("checkpoint": {"tag_validation": "Warn", "load_universal": "no"})",
           R"("sequence_parallel_size": 1)",
           R"("datastates_ckpt": false)",
           R"("compression_training": {"row_pruning": {"shared_parameters": {"enabled": false}, "different_groups": {}}})",
           R"("weight_quantization": {"enabled": false, "num_bits": 4})",
           R"("elasticity": {"enabled": false, "micro_batch_sizes": [8]})",
           R"("torch_autocast": {"enabled": false, "dtype": "bf16"})",
           R"("data_efficiency": {"enabled": false, "data_sampling": {"enabled": true}})",
           R"("flops_profiler": {"enabled": 0, "profile_step": 5})",
           R"("compile": {"deepcompile": false})",
       })
    EXPECT_THAT(with(members).notices, IsEmpty()) << members;
}

TEST(Resolve, UnsupportedKeysThatAskForSomethingAreErrorsThatSaySo) {
  for (const char* members : {
           R"("amp": {"enabled": true, "keep_batchnorm_fp32": true})",
           R"("wandb": {"enabled": "yes"})",
           R"("managed_gradient_accumulation": false)",
           R"("fp16": {"enabled": true, "auto_cast": true})",
           R"("checkpoint": {"load_universal": true})",
           R"("checkpoint": {"writer": {"type": "PYTHON"}})",
           R"("sequence_parallel_size": 2)",
           R"("datastates_ckpt": {"host_cache_size": 16})",
           R"("compression_training": {"row_pruning": {"shared_parameters": {"enabled": true}}})",
           R"("weight_quantization": {"num_bits": 4})",
           R"("elasticity": {"enabled": true})",
           R"("sparse_gradients": true)",
           R"("tensor_parallel": {"autotp_size": 2})",
           R"("compile": {"deepcompile": true})",
           R"("zero_optimization": {"legacy_stage1": true})",
           R"("bf16": {"enabled": true, "bf16_optimizer_states": true})",
           R"("data_types": {"buffer_dtype": "int8"})",
       }) {
    const Error error = refusal(members);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << members;
    EXPECT_THAT(error.message(), HasSubstr("t.json:1:")) << members;
    EXPECT_THAT(error.message(), HasSubstr("Gannet does not implement this")) << members;
  }
}

TEST(Resolve, KeysWithoutEffectAreSaidOnceForEachReason) {
  const auto notices =
      with(
          R"("zero_optimization": {"overlap_comm": true, "contiguous_gradients": true, "offload_optimizer": {"device": "cpu", "buffer_count": 8}}, "aio": {"queue_depth": 32},
    "disable_allgather": true, "fp16": {"loss_scale": 128, "auto_cast": true})")
          .notices;
  EXPECT_THAT(
      notices,
      ElementsAre("no effect: zero_optimization.overlap_comm (buckets are always reduced during backward)",
                  "no effect: zero_optimization.offload_optimizer.device, zero_optimization.offload_optimizer.buffer_count "
                  "(it acts at ZeRO stage 1 and above)",
                  HasSubstr("aio.queue_depth"), HasSubstr("disable_allgather"),
                  "no effect: fp16.loss_scale, fp16.auto_cast (fp16.enabled is not set)"));
}

TEST(Resolve, WhereZeroPutsThingsReachesTheSettings) {
  const auto zero = with(R"("zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 7, "param_persistence_threshold": 8,
    "offload_optimizer": {"device": "nvme", "nvme_path": "/fast", "buffer_count": 6}, "offload_param": {"device": "cpu", "max_in_cpu": 5}},
    "aio": {"queue_depth": 32})")
                        .settings.zero;
  EXPECT_EQ(zero.stage, 3);
  EXPECT_EQ(zero.prefetch_bucket_size, 7);
  EXPECT_EQ(zero.param_persistence_threshold, 8);
  EXPECT_EQ(zero.offload_optimizer.device, "nvme");
  EXPECT_EQ(*zero.offload_optimizer.params.find("nvme_path"), Value("/fast"));
  EXPECT_EQ(*zero.offload_optimizer.params.find("queue_depth"), Value(32));
  EXPECT_EQ(zero.offload_optimizer.buffer_count, 6);
  EXPECT_EQ(zero.offload_param.device, "cpu");
  EXPECT_EQ(zero.offload_param.max_in_cpu, 5);
}

TEST(Resolve, KeysThatActElsewhereSaySo) {
  using testing::Contains;
  EXPECT_THAT(with(R"("zero_optimization": {"stage": 1, "stage3_prefetch_bucket_size": 7})").notices,
              Contains(HasSubstr("stage3_prefetch_bucket_size (it acts at ZeRO stage 3)")));
  EXPECT_THAT(with(R"("zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 7})").notices, testing::IsEmpty());
  EXPECT_THAT(with(R"("zero_optimization": {"stage": 1}, "aio": {"queue_depth": 32})").notices,
              Contains(HasSubstr("aio.queue_depth (it belongs to the nvme offload of ZeRO)")));
  EXPECT_THAT(with(R"("zero_optimization": {"stage": 2, "zero_quantized_weights": true})").notices,
              Contains(HasSubstr("it acts at ZeRO stage 3")));
}

TEST(Resolve, WhatZeroDoesNotDoSaysSo) {
  EXPECT_EQ(with(R"("zero_optimization": {"stage": 2})").settings.zero.stage, 2);
  for (const auto& [members, text] :
       {std::pair{R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true})", "weights gathered in 8 bits (qwZ)"},
        {R"("zero_optimization": {"stage": 3, "mics_shard_size": 2})", "shard groups (MiCS)"},
        {R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": 0.5}})",
         "states that are offloaded in part"},
        {R"("zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}})",
         "offload_param belongs to ZeRO stage 3, and the stage is 2"},
        {R"("zero_optimization": {"stage": 2, "zenflow": {"topk_ratio": 0.2}})", "ZenFlow is not done by Gannet"},
        {R"("zero_optimization": {"stage": 1, "ignore_unused_parameters": false})",
         "an error for a parameter that got no gradient"}}) {
    const Error error = refusal(members);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << members;
    EXPECT_THAT(error.message(), HasSubstr(text)) << members;
  }
}

TEST(Resolve, TheLossScalesRulesHoldOnlyWhereTheyMatter) {
  EXPECT_THAT(refusal(R"("fp16": {"enabled": true, "loss_scale_window": 0})").message(),
              HasSubstr("fp16.loss_scale_window must be above 0 with a dynamic loss scale"));
  EXPECT_THAT(refusal(R"("fp16": {"enabled": true, "min_loss_scale": -1})").message(),
              HasSubstr("fp16.min_loss_scale must be above 0"));
  EXPECT_NO_THROW(with(R"("fp16": {"enabled": true, "loss_scale": 128, "loss_scale_window": 0, "min_loss_scale": 0})"));
  EXPECT_NO_THROW(with(R"("fp16": {"enabled": false, "loss_scale_window": -5})"));
  for (const char* hysteresis : {"0", "-2"})  // the scale would never fall
    EXPECT_THAT(refusal(std::string(R"("fp16": {"enabled": true, "hysteresis": )") + hysteresis + "}").message(),
                HasSubstr("fp16.hysteresis must be above 0 with a dynamic loss scale"));
  EXPECT_NO_THROW(with(R"("fp16": {"enabled": true, "loss_scale": 128, "hysteresis": 0})"));
  EXPECT_NO_THROW(with(R"("fp16": {"enabled": false, "hysteresis": 0})"));
  EXPECT_NO_THROW(with(R"("fp16": {"enabled": true, "initial_scale_power": -3, "hysteresis": 1})"));
}

TEST(Resolve, GradientsAreAddedUpInTheModelsTypeOrInFp32) {
  EXPECT_EQ(with(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"})").settings.grad_accum_dtype,
            DType::kFloat32);
  EXPECT_EQ(with(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"})").settings.grad_accum_dtype,
            DType::kBFloat16);
  EXPECT_EQ(refusal(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp16"})").code(), ErrorCode::kUnsupported);
}

TEST(Resolve, ABlockWithoutATypeIsAnErrorAndAnEmptyOneIsNone) {
  EXPECT_EQ(refusal(R"("scheduler": {"params": {"a": 1}})").message(), "t.json:1:25: scheduler has params and no type");
  EXPECT_EQ(with(R"("optimizer": {}, "scheduler": {"type": null, "params": {}})").settings.optimizer.type, "");
}

}  // namespace
}  // namespace gannet::config
