// Resuming in another precision, from weights only, next to another job, and from impossible
// numbers; the model's file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <filesystem>

#include "base/support.h"
#include "checkpoint/checkpoint.h"
#include "convert/import_weights.h"
#include "files/pt_file.h"
#include "files/pt_writer.h"
#include "models.h"

namespace gannet::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Resume : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }
  std::string path(const std::string& name) const { return (root_ / name).string(); }
  fs::path root_ = fs::temp_directory_path() / ("gannet_resume_" + std::to_string(::getpid()));
};

Dict config_of(const std::string& precision, int64_t stage = 0) {
  Dict config = config_with({{"zero_optimization", Dict{{"stage", stage}}}});
  if (precision == "bf16") config["bf16"] = Dict{{"enabled", true}};
  if (precision == "fp16") config["fp16"] = Dict{{"enabled", true}, {"initial_scale_power", 8}};
  return config;
}

template <class Model>
void train(Engine<Model>& engine, int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    const auto [x, y] = make_batch(engine.global_steps(), 4);
    engine.backward(engine.forward(x, y));
    EXPECT_TRUE(engine.step().applied);
  }
}

TEST_F(Resume, every_pair_of_precisions_resumes_and_fp16_begins_with_a_scale_of_its_own) {
  for (const std::string saved : {"fp32", "bf16", "fp16"})
    for (const std::string resumed : {"fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(saved + " to " + resumed);
      fs::remove_all(root_);
      std::vector<std::pair<std::string, at::Tensor>> masters;
      {
        auto engine = initialize(make_net(), {.config = config_of(saved)}).engine;
        train(*engine, 3);
        masters = engine->fp32_parameters();
        engine->save_checkpoint(path("run"));
      }
      auto engine = initialize(make_net(9), {.config = config_of(resumed)}).engine;
      train(*engine, 1);  // what the scale was before the load does not count
      const LoadReceipt receipt = engine->load_checkpoint(path("run"));
      const auto loaded = engine->fp32_parameters();
      ASSERT_EQ(loaded.size(), masters.size());
      for (size_t i = 0; i < loaded.size(); ++i) EXPECT_TRUE(at::equal(loaded[i].second, masters[i].second)) << loaded[i].first;
      EXPECT_EQ(engine->global_steps(), 3);
      EXPECT_EQ(engine->loss_scale(), resumed == "fp16" ? 256 : 1);
      const auto told = Contains(AllOf(HasSubstr("the loss scale begins at the config's 256"), HasSubstr("saved in " + saved)));
      if (resumed == "fp16" && saved != "fp16")
        EXPECT_THAT(receipt.notes, told);
      else
        EXPECT_THAT(receipt.notes, Not(Contains(HasSubstr("loss scale"))));
      train(*engine, 3);
      EXPECT_EQ(engine->global_steps(), 6);
    }
}

Dict decaying(int64_t updates, double lr = 1e-2) {
  return config_with({{"optimizer", adamw(lr)},
                      {"scheduler", Dict{{"type", "WarmupDecayLR"},
                                         {"params", Dict{{"warmup_max_lr", nullptr},
                                                         {"warmup_num_steps", 2},
                                                         {"warmup_type", "linear"},
                                                         {"total_num_steps", updates}}}}}});
}

std::vector<double> rates_of(const Dict& config, int64_t from, int64_t to, const std::string& folder,
                             std::string* said = nullptr) {
  auto engine = initialize(make_net(), {.config = config}).engine;
  if (from > 0) {
    const LoadReceipt receipt = engine->load_checkpoint(folder);
    if (said) *said = receipt.to_string();
    EXPECT_EQ(receipt.lr, engine->get_lr());
  }
  std::vector<double> rates;
  for (int64_t step = from; step < to; ++step) {
    rates.push_back(engine->get_lr()[0]);
    train(*engine, 1);
  }
  if (from == 0 && !folder.empty()) engine->save_checkpoint(folder);
  return rates;
}

TEST_F(Resume, the_rate_is_the_present_schedules_and_a_line_says_both) {
  rates_of(decaying(10), 0, 6, path("run"));
  std::string said;
  const auto rest = [&](const Dict& config) {
    auto whole = rates_of(config, 0, 10, "");
    whole.erase(whole.begin(), whole.begin() + 6);
    return whole;
  };
  EXPECT_EQ(rates_of(decaying(10), 6, 10, path("run"), &said), rest(decaying(10)));
  EXPECT_THAT(said, Not(HasSubstr("schedule has it")));
  for (const Dict& config : {decaying(20), decaying(10, 0.5)}) {
    EXPECT_EQ(rates_of(config, 6, 10, path("run"), &said), rest(config));
    EXPECT_THAT(said, HasSubstr("as this run's schedule has it at update 6; the checkpoint's was 0.00625"));
  }
}

// One of the program's own that it advances itself: what it has set since stays, unless the schedule is another one.
TEST_F(Resume, a_rate_that_the_program_set_stays_where_the_schedule_is_the_same) {
  const auto made = [&](double first) {
    LrSchedule schedule([first](int64_t step) { return first / static_cast<double>(1 + step); });
    schedule.by_hand = true;
    return initialize(make_net(), {.config = config_of("fp32"), .lr_scheduler = schedule}).engine;
  };
  {
    auto engine = made(0.5);
    train(*engine, 1);
    engine->scheduler_handle()->step();
    engine->optimizer_handle()->group(0).set("lr", 0.125);
    engine->save_checkpoint(path("run"));
  }
  auto same = made(0.5);
  same->load_checkpoint(path("run"));
  EXPECT_EQ(same->get_lr()[0], 0.125);
  same = nullptr;
  auto other = made(0.75);
  EXPECT_THAT(other->load_checkpoint(path("run")).to_string(), HasSubstr("lr of group 0 is 0.375"));
  EXPECT_EQ(other->get_lr()[0], 0.375);
}

TEST_F(Resume, a_scale_of_fp16_goes_on_where_it_was) {
  {
    auto engine = initialize(make_net(), {.config = config_of("fp16")}).engine;
    const auto [x, y] = make_batch(0, 4);
    for (int64_t step = 0; step < 2; ++step) {  // two overflows use the hysteresis up
      engine->backward(engine->forward(x, y) * 1e30);
      EXPECT_FALSE(engine->step().applied);
    }
    EXPECT_EQ(engine->loss_scale(), 128);
    engine->save_checkpoint(path("run"));
  }
  auto engine = initialize(make_net(), {.config = config_of("fp16")}).engine;
  engine->load_checkpoint(path("run"));
  EXPECT_EQ(engine->loss_scale(), 128);
}

// ---- weights only

// Two names of one parameter, a buffer.
struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const at::Tensor& shared) { weight = register_parameter("weight", shared); }
  at::Tensor weight;
};
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    embed = register_module("embed", torch::nn::Linear(8, 8));
    head = register_module("head", std::make_shared<HeadImpl>(embed->weight));
    scale = register_buffer("scale", torch::ones({4}));
    out = register_module("out", torch::nn::Linear(8, 4));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor hidden = torch::matmul(torch::tanh(embed(x.to(embed->weight.dtype()))), head->weight.t());
    return torch::mse_loss(out(hidden).to(torch::kFloat) * scale.to(torch::kFloat), y.to(torch::kFloat));
  }
  torch::nn::Linear embed{nullptr}, out{nullptr};
  std::shared_ptr<HeadImpl> head;
  at::Tensor scale;
};

NamedTensors weights_of(const TiedImpl& model, at::ScalarType dtype) {
  NamedTensors tensors;
  const at::Tensor shared = model.embed->weight.detach().to(dtype);
  tensors.emplace_back("embed.weight", shared);
  tensors.emplace_back("embed.bias", model.embed->bias.detach().to(dtype));
  tensors.emplace_back("head.weight", shared);
  tensors.emplace_back("out.weight", model.out->weight.detach().to(dtype));
  tensors.emplace_back("out.bias", model.out->bias.detach().to(dtype));
  tensors.emplace_back("scale", at::full({4}, 0.5));
  return tensors;
}

TEST_F(Resume, weights_of_every_dtype_and_both_formats_are_loaded_as_weights_in_every_precision) {
  torch::manual_seed(3);
  const TiedImpl other;
  fs::create_directories(root_);
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble})
    for (const std::string name : {"model.bin", "model.safetensors"}) {
      fs::remove_all(path("run"));
      NamedTensors tensors = weights_of(other, dtype);
      if (name == "model.bin")
        files::save_pt(path(name), tensors);
      else
        save_safetensors(path(name), tensors, {});
      const auto imported = convert::import_weights(path(name), path("run"), {});
      if (name == "model.bin")
        EXPECT_THAT(imported.to_string(), HasSubstr("not taken: head.weight: another name of embed.weight, which is kept once"));
      for (const std::string precision : {"fp32", "bf16", "fp16"})
        for (const int64_t stage : {0, 3}) {
          SCOPED_TRACE(name + " in " + c10::toString(dtype) + " to " + precision + " at stage " + std::to_string(stage));
          auto model = std::make_shared<TiedImpl>();
          auto engine = initialize(model, {.config = config_of(precision, stage)}).engine;
          train(*engine, 1);
          const LoadReceipt receipt = engine->load_checkpoint(path("run"));
          EXPECT_TRUE(receipt.module_only);
          EXPECT_THAT(receipt.notes, Contains(HasSubstr("the checkpoint holds only weights")));
          if (dtype != at::kFloat)
            EXPECT_THAT(receipt.notes, Contains(HasSubstr(std::string("converted from ") + c10::toString(dtype))));
          EXPECT_EQ(receipt.parameters, 4);
          EXPECT_EQ(receipt.buffers, 1);
          for (const auto& [parameter, value] : engine->fp32_parameters())
            for (const auto& [known, wanted] : tensors)
              if (known == parameter) EXPECT_TRUE(at::equal(value, wanted.to(at::kFloat).view(value.sizes()))) << parameter;
          EXPECT_EQ(model->scale[0].item<double>(), 0.5);
          EXPECT_EQ(engine->global_steps(), 1) << "counters are the engine's own";
          EXPECT_EQ(engine->loss_scale(), precision == "fp16" ? 256 : 1);
          train(*engine, 2);
        }
    }
}

TEST_F(Resume, weights_under_the_other_name_of_a_tied_parameter_are_found_and_others_are_refused) {
  fs::create_directories(root_);
  const TiedImpl other;
  NamedTensors tensors = weights_of(other, at::kFloat);
  tensors.erase(tensors.begin());  // only head.weight
  save_safetensors(path("one.safetensors"), tensors, {});
  convert::import_weights(path("one.safetensors"), path("run"), {.tag = "one"});
  tensors.emplace_back("embed.weight", tensors[1].second + 1);  // two that differ
  save_safetensors(path("two.safetensors"), tensors, {});
  convert::import_weights(path("two.safetensors"), path("run"), {.tag = "two"});
  auto model = std::make_shared<TiedImpl>();
  auto engine = initialize(model, {.config = config_of("fp32")}).engine;
  engine->load_checkpoint(path("run"), {.tag = "one"});
  EXPECT_TRUE(at::equal(model->embed->weight, other.embed->weight));
  EXPECT_THAT(error_of(ErrorCode::kMismatch, [&] { engine->load_checkpoint(path("run"), {.tag = "two"}); }),
              HasSubstr("unexpected in the checkpoint: parameter/head.weight"));
}

// ---- numbers

TEST_F(Resume, counters_and_rates_that_cannot_be_are_refused_before_anything_is_written) {
  {
    auto engine = initialize(make_net(), {.config = config_of("fp16")}).engine;
    train(*engine, 2);
    engine->save_checkpoint(path("run"), {.tag = "good"});
  }
  const checkpoint::Opened good = checkpoint::open(path("run"), {});
  checkpoint::Content content{.document = good.document(), .rank_document = good.rank_document(0)};
  for (const auto& tensor : good.tensors()) {
    at::Tensor values = at::empty({tensor.numel()}, tensor.dtype);
    good.read({{tensor.name, 0, values}});
    content.slices.push_back({tensor.name, tensor.shape, 0, values});
  }
  const Dict document = content.document;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto with = [&](const char* key, Value value) {
    Dict changed = document;
    changed[key] = std::move(value);
    return changed;
  };
  const auto with_hyper = [&](const char* name, double number) {
    Dict changed = document;
    changed["groups"].as_list()[0].as_dict()["hyper"].as_dict()[name] = number;
    return changed;
  };
  const auto with_scale = [&](double scale) {
    Dict changed = document;
    changed["loss_scaler"].as_dict()["scale"] = scale;
    return changed;
  };
  const std::vector<std::pair<std::string, Dict>> cases = {
      {"'global_steps' is -5", with("global_steps", -5)},
      {"'global_samples' is -64", with("global_samples", -64)},
      {"'global_samples' is 9007199254740993", with("global_samples", (int64_t{1} << 53) + 1)},
      {"'applied_steps' is -9223372036854775808", with("applied_steps", INT64_MIN)},
      {"'accumulation_steps' is 0", with("accumulation_steps", 0)},
      {"'schedule_position' is -1", with("schedule_position", -1)},
      {"lr of group 0 is NaN", with_hyper("lr", nan)},
      {"lr of group 0 is -1", with_hyper("lr", -1)},
      {"eps of group 0 is Infinity", with_hyper("eps", 1 / 0.0)},
      {"the loss scale is 0", with_scale(0)},
      {"the loss scale is NaN", with_scale(nan)},
  };
  auto engine = initialize(make_net(9), {.config = config_of("fp16")}).engine;
  const at::Tensor before = flat_parameters(*engine->module());
  size_t number = 0;
  for (const auto& [text, changed] : cases) {
    SCOPED_TRACE(text);
    content.tag = "bad" + std::to_string(++number);
    content.document = changed;
    checkpoint::Saver(path("run"), {}).save(content, {.save_latest = false});
    EXPECT_THAT(
        error_of(ErrorCode::kCorrupt, [&] { engine->load_checkpoint(path("run"), {.tag = content.tag, .lock_folder = false}); }),
        HasSubstr(text));
    EXPECT_TRUE(at::equal(flat_parameters(*engine->module()), before));
  }
  engine->load_checkpoint(path("run"), {.tag = "good"});
}

// ---- the folder's lock

TEST_F(Resume, a_run_that_resumes_owns_the_folder_from_the_load_on) {
  {
    initialize(make_net(), {.config = config_of("fp32")}).engine->save_checkpoint(path("run"));
  }
  auto engine = initialize(make_net(), {.config = config_of("fp32")}).engine;
  engine->load_checkpoint(path("run") + "/");
  EXPECT_TRUE(fs::exists(path("run/.gannet.lock")));
  const auto in_another_process = [&](const LoadOptions& options, const std::string& folder = "run") {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      int code = 0;
      try {
        auto other = initialize(make_net(), {.config = config_of("fp32")}).engine;
        other->load_checkpoint(path(folder), options);
      } catch (const Error& error) {
        code = error.code() == ErrorCode::kUnavailable ? 9 : 8;
      }
      ::_exit(code);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(in_another_process({}), 9);
  EXPECT_EQ(in_another_process({.lock_folder = false}), 0);
  EXPECT_EQ(in_another_process({.load_module_only = true}), 0);
  engine->save_checkpoint(path("run"));                                                        // under its other spelling
  initialize(make_net(), {.config = config_of("fp32")}).engine->load_checkpoint(path("run"));  // another engine of this process
  engine.reset();
  EXPECT_FALSE(fs::exists(path("run/.gannet.lock")));
  EXPECT_EQ(in_another_process({}), 0);
  // A run that begins in an empty place also owns the folder.
  auto fresh = initialize(make_net(), {.config = config_of("fp32")}).engine;
  EXPECT_FALSE(fresh->load_checkpoint(path("new"), {.if_present = true}));
  EXPECT_EQ(in_another_process({.if_present = true}, "new"), 9);
}

// ---- the model's file

TEST_F(Resume, the_models_file_is_what_its_name_says_and_is_not_written_at_stage_3_unless_the_config_says_so) {
  auto model = std::make_shared<TiedImpl>();
  auto engine = initialize(model, {.config = config_of("bf16", 2)}).engine;
  EXPECT_TRUE(engine->save_16bit_model(path("out"), "x.bin"));
  const files::PtFile file = files::PtFile::open(path("out/x.bin"));
  for (const char* name : {"embed.weight", "head.weight"}) {
    const files::Object* found = file.root().find(name);
    ASSERT_TRUE(found) << name;
    EXPECT_TRUE(at::equal(file.read(found->tensor), model->embed->weight));
  }
  EXPECT_TRUE(engine->save_16bit_model(path("out")));
  EXPECT_EQ(load_safetensors(path("out/model.safetensors")).at("out.weight").scalar_type(), at::kBFloat16);
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { engine->save_16bit_model(path("out"), "model.npz"); }),
              HasSubstr("*.safetensors"));

  auto sharded = initialize(std::make_shared<TiedImpl>(), {.config = config_of("bf16", 3)}).engine;
  EXPECT_FALSE(sharded->save_16bit_model(path("stage3"), "x.bin"));
  EXPECT_FALSE(fs::exists(path("stage3")));
  for (const char* key : {"stage3_gather_16bit_weights_on_model_save", "gather_16bit_weights_on_model_save",
                          "stage3_gather_fp16_weights_on_model_save"}) {
    Dict config = config_of("bf16", 3);
    config["zero_optimization"].as_dict()[key] = true;
    auto gathering = initialize(std::make_shared<TiedImpl>(), {.config = config}).engine;
    EXPECT_TRUE(gathering->save_16bit_model(path(key), "x.bin")) << key;
    EXPECT_TRUE(fs::exists(path(key) + "/x.bin"));
  }
  sharded->save_fp32_model(path("stage3"), "y.pt");
  EXPECT_TRUE(files::PtFile::open(path("stage3/y.pt")).root().find("head.weight"));
}

}  // namespace
}  // namespace gannet::test
