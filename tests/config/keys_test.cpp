#include "config/keys.h"

#include <gtest/gtest.h>

#include <set>

#include "config/convert.h"
#include "config/parse.h"

namespace gannet::config {
namespace {

TEST(KeyTable, EveryRowHasAMeaningAndADefaultOfItsOwnTypeAndRange) {
  for (const Key* key : all_keys()) {
    SCOPED_TRACE(key->path);
    EXPECT_FALSE(key->meaning.empty());
    const Value written = parse_value(key->default_json);
    if (!written.is_null() && !(written == Value("auto"))) {
      EXPECT_NO_THROW(convert(*key, written, "default"));
    }
    if (!key->off.empty()) {
      EXPECT_NO_THROW(convert(*key, parse_value(key->off), "off"));
    }
  }
}

TEST(KeyTable, EveryRowStandsInASectionOfTheTable) {
  for (const Key* key : all_keys()) {
    const size_t slash = key->path.rfind('/');
    if (slash == std::string_view::npos) continue;
    const Key* section = find_key(key->path.substr(0, slash));
    ASSERT_TRUE(section) << key->path;
    EXPECT_TRUE(section->is_section()) << key->path;
  }
}

TEST(KeyTable, NoNameStandsTwice) {
  std::set<std::string> seen;
  for (const Key* key : all_keys()) {
    EXPECT_TRUE(seen.insert(std::string(key->path)).second) << key->path;
    if (!key->alias.empty()) {
      EXPECT_TRUE(
          seen.insert(std::string(key->path.substr(0, key->path.size() - key->name().size())) + std::string(key->alias)).second)
          << key->path;
    }
  }
}

TEST(KeyTable, AKeyThatIsNotActiveSaysWhyAndADeprecatedOneNamesItsSuccessor) {
  for (const Key* key : all_keys()) {
    if (!is_read(key->status) && !key->is_section()) {
      EXPECT_FALSE(key->note.empty()) << key->path;
    }
    if (!key->replaced_by.empty()) {
      EXPECT_TRUE(find_key(key->replaced_by)) << key->path;
    }
  }
}

TEST(KeyTable, HasTheKeysAndDefaultsOfDeepSpeed) {
  const std::pair<const char*, const char*> expected[] = {
      {"train_batch_size", "null"},
      {"gradient_clipping", "1.0"},
      {"steps_per_print", "null"},
      {"gradient_allreduce_op", "\"mean\""},
      {"fp16/initial_scale_power", "16"},
      {"fp16/loss_scale_window", "1000"},
      {"fp16/hysteresis", "2"},
      {"fp16/min_loss_scale", "1"},
      {"bf16/check_grad_overflow", "true"},
      {"zero_optimization/reduce_bucket_size", "500000000"},
      {"zero_optimization/sub_group_size", "1000000000"},
      {"zero_optimization/offload_param/buffer_count", "5"},
      {"zero_optimization/offload_optimizer/buffer_count", "4"},
      {"zero_optimization/zenflow/topk_ratio", "0.1"},
      {"aio/block_size", "1048576"},
      {"checkpoint/tag_validation", "\"WARN\""},
      {"flops_profiler/module_depth", "-1"},
      {"elasticity/micro_batch_sizes", "[2, 4, 6]"},
      {"autotuning/max_train_micro_batch_size_per_gpu", "1024"},
      {"hybrid_engine/max_out_tokens", "512"},
      {"compile/free_activation_threshold", "10485760"},
      {"sparse_attention/block", "16"},
      {"data_efficiency/seed", "1234"},
      {"comet/samples_log_interval", "100"},
      {"eigenvalue/max_iter", "100"},
      {"nebula/persistent_time_interval", "100"},
  };
  for (const auto& [path, text] : expected) {
    ASSERT_TRUE(find_key(path)) << path;
    EXPECT_EQ(find_key(path)->default_json, text) << path;
  }
  EXPECT_GT(all_keys().size(), 350u);
}

TEST(KeyTable, FindsARowByItsAlias) {
  EXPECT_EQ(find_key("zero_optimization/prefetch_bucket_size")->name(), "stage3_prefetch_bucket_size");
  EXPECT_EQ(find_key("bfloat16")->name(), "bf16");
  EXPECT_EQ(find_key("bf17"), nullptr);
}

TEST(KeyTable, MembersOfASectionAreThoseDirectlyInIt) {
  for (const Key* key : members_of("zero_optimization")) EXPECT_EQ(key->path.find('/'), key->path.rfind('/'));
  EXPECT_EQ(members_of("zero").size(), 0u);
  EXPECT_EQ(members_of("timers").size(), 1u);
}

}  // namespace
}  // namespace gannet::config
