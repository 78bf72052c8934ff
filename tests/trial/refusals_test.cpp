// Mistakes of a trial, each with its error text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "small_trial.h"

namespace {

using gannet::BatchMetrics;
using gannet::Dict;
using gannet::TrialLength;
using launched::Folder;
using trial_test::hooks;

class TrialRefusal : public testing::Test {
 protected:
  void SetUp() override {
    hooks = {};
    settings.max_length = TrialLength::batches(2);
    settings.report_period = 1;
    settings.hparams = gannet::Hparams(trial_test::small_hparams());
  }
  void TearDown() override { hooks = {}; }
  std::string refusal() {
    Folder folder("refusal");
    if (settings.output_dir == "trial_output" || !keeps) settings.output_dir = (folder.path / "out").string();
    try {
      gannet::run_trial<trial_test::SmallTrial>(settings);
    } catch (const gannet::Error& error) {
      return error.what();
    }
    return "the trial ran";
  }
  void set(const std::string& name, const gannet::Value& value) {
    Dict hparams = settings.hparams.peek();
    hparams[name] = value;
    settings.hparams = gannet::Hparams(hparams);
  }
  gannet::TrialSettings settings;
  bool keeps = false;
};

TEST_F(TrialRefusal, WithoutAnythingWrongItRuns) { EXPECT_EQ(refusal(), "the trial ran"); }

TEST_F(TrialRefusal, OfEngines) {
  hooks.wraps = false;
  EXPECT_THAT(refusal(), testing::HasSubstr("has registered no engine"));
  hooks.wraps = true;
  hooks.steps = false;
  EXPECT_THAT(refusal(), testing::HasSubstr("train_batch trained nothing: no registered engine took a step"));
  hooks.steps = true;
  hooks.on_construct = [](gannet::TrialContext& context) {
    Dict config = trial_test::small_config(1);
    context.wrap_model_engine(gannet::initialize(trial_test::Net(2, 0.0), {.config = config}).engine, "other");
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("engines 'engine' and 'other' differ in train_micro_batch_size_per_gpu"));
  hooks.on_construct = [](gannet::TrialContext& context) {
    context.wrap_model_engine(std::shared_ptr<gannet::Engine<trial_test::NetImpl>>(), "other");
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("wrap_model_engine was given no engine"));
  hooks.on_construct = {};
  set("nets", 2);
  set("overwrite_deepspeed_args", Dict{{"gannet", Dict{{"checkpoint", Dict{{"keep", 1}}}}}});
  EXPECT_THAT(refusal(), testing::HasSubstr("gannet.checkpoint.keep is 1 for the engine"));
}

TEST_F(TrialRefusal, OfTrainingMetrics) {
  hooks.train_metrics = [](const gannet::Example&, const at::Tensor&) { return BatchMetrics(); };
  EXPECT_THAT(refusal(), testing::HasSubstr("train_batch, batch 0 returned no metrics"));
  hooks.train_metrics = [](const gannet::Example&, const at::Tensor&) { return BatchMetrics(at::Tensor()); };
  EXPECT_THAT(refusal(), testing::HasSubstr("metric 'loss' is an undefined tensor"));
  hooks.train_metrics = [](const gannet::Example&, const at::Tensor&) { return BatchMetrics(torch::zeros({2, 3})); };
  EXPECT_THAT(refusal(), testing::HasSubstr("metric 'loss' has the shape [2, 3], not one element"));
  hooks.train_metrics = [](const gannet::Example&, const at::Tensor&) { return BatchMetrics{{"accuracy", 1}}; };
  EXPECT_THAT(refusal(), testing::HasSubstr("returned no metric 'loss'"));
  settings.report_period = 2;
  hooks.train_metrics = [calls = 0](const gannet::Example&, const at::Tensor& loss) mutable {
    return calls++ == 0 ? BatchMetrics(loss) : BatchMetrics{{"loss", loss}, {"accuracy", 1}};
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("batch 1 returned the metrics accuracy, loss; those of the calls before were loss"));
  hooks.train_metrics = [](const gannet::Example&, const at::Tensor& loss) { return BatchMetrics(loss).of_samples(-1); };
  EXPECT_THAT(refusal(), testing::HasSubstr("of_samples(-1"));
}

TEST_F(TrialRefusal, OfValidationMetrics) {
  settings.metric = "acuracy";
  hooks.evaluation_metrics = [](const gannet::Example&, const at::Tensor&) { return BatchMetrics{{"accuracy", 0.5}}; };
  EXPECT_THAT(refusal(), testing::HasSubstr("metric is 'acuracy', which validation does not give; did you mean 'accuracy'?"));
  settings.metric = "accuracy";
  hooks.evaluation_metrics = [](const gannet::Example&, const at::Tensor&) { return BatchMetrics{{"accuracy", std::nan("")}}; };
  EXPECT_THAT(refusal(), testing::HasSubstr("validation after batch 2: metric 'accuracy' is nan"));
  hooks.evaluation_metrics = {};
  hooks.validation_loader = [](gannet::TrialContext&) { return std::shared_ptr<gannet::DataLoader<>>(); };
  EXPECT_THAT(refusal(), testing::HasSubstr("metric is given, but build_validation_data_loader returns no loader"));
  settings.metric = "";
  EXPECT_EQ(refusal(), "the trial ran");
}

// A metric that is not finite, and that chooses nothing, is null in the records.
TEST_F(TrialRefusal, NotOfOtherMetricsThatAreNotFinite) {
  hooks.train_metrics = [](const gannet::Example&, const at::Tensor& loss) {
    return BatchMetrics{{"loss", loss}, {"ratio", std::nan("")}};
  };
  EXPECT_EQ(refusal(), "the trial ran");
}

TEST_F(TrialRefusal, OfReducers) {
  hooks.on_construct = [](gannet::TrialContext& context) {
    context.wrap_reducer([](const gannet::List&) -> gannet::Value { return "much"; }, "text");
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("reducer 'text' gave a string, not a number"));
  hooks.on_construct = [](gannet::TrialContext& context) {
    context.wrap_reducer([](const gannet::List&) -> gannet::Value { return 1; }, "loss");
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("there is a metric 'loss' already"));
  hooks.on_construct = [](gannet::TrialContext& context) {
    context.wrap_reducer([](const gannet::List&) -> gannet::Value { return 1; }, "count");
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("two reducers are called 'count'"));
}

TEST_F(TrialRefusal, OfLoaders) {
  hooks.training_loader = [](gannet::TrialContext&) { return std::shared_ptr<gannet::DataLoader<>>(); };
  EXPECT_THAT(refusal(), testing::HasSubstr("build_training_data_loader returned no loader"));
  hooks.training_loader = [](gannet::TrialContext&) { return gannet::make_loader(gannet::Dataset<>(trial_test::samples(8))); };
  EXPECT_THAT(refusal(), testing::HasSubstr("the loader has micro-batches of 1 samples, the config says 2"));
  hooks.training_loader = [](gannet::TrialContext& context) {
    return gannet::make_loader(gannet::Dataset<>(trial_test::samples(0)), context.loader_options());
  };
  EXPECT_THAT(refusal(), testing::Not(testing::HasSubstr("the trial ran")));
  hooks.training_loader = [](gannet::TrialContext& context) {
    return gannet::make_loader(gannet::Dataset<>([]() -> std::optional<gannet::Example> { return std::nullopt; }),
                               context.loader_options());
  };
  EXPECT_THAT(refusal(), testing::Not(testing::HasSubstr("the trial ran")));
  settings.max_length = TrialLength::epochs(1);
  EXPECT_THAT(refusal(), testing::HasSubstr("max_length is 1 epoch, but the training data are a stream"));
  settings.max_length = TrialLength::batches(1);
  hooks.training_loader = {};
  hooks.validation_loader = [](gannet::TrialContext& context) {
    return context.make_validation_loader(gannet::Dataset<>(std::vector<gannet::Example>()));
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("the validation data have 0 samples for 1 ranks"));
  hooks.validation_loader = [](gannet::TrialContext& context) {
    return gannet::make_loader(gannet::Dataset<>([]() -> std::optional<gannet::Example> { return std::nullopt; }),
                               context.loader_options());
  };
  EXPECT_THAT(refusal(), testing::HasSubstr("the validation loader is empty on every rank"));
}

TEST_F(TrialRefusal, OfHyperparameters) {
  settings.given = {"width", "depht"};
  EXPECT_THAT(refusal(), testing::HasSubstr("the trial never reads the hyperparameter 'depht'"));
  settings.given = {};
  set("width", "wide");
  EXPECT_THAT(refusal(), testing::HasSubstr("hyperparameter 'width' is \"wide\", a string; the trial asks for an integer"));
  set("width", 4);
  set("deepspeed_config", nullptr);
  EXPECT_THAT(refusal(), testing::HasSubstr("there is no deepspeed_config"));
}

struct OtherTrial : trial_test::SmallTrial {
  using SmallTrial::SmallTrial;
};

TEST_F(TrialRefusal, OfAResumeOfAnotherTrial) {
  Folder folder("identity");
  keeps = true;
  settings.output_dir = (folder.path / "out").string();
  EXPECT_EQ(refusal(), "the trial ran");
  const auto before = settings.hparams;
  set("width", 5);
  set("samples", 16);
  EXPECT_THAT(refusal(),
              testing::HasSubstr("its hyperparameters differ: samples is 12 there and 16 here, width is 4 there and 5 here"));
  settings.hparams = before;
  set("nets", 2);
  EXPECT_THAT(refusal(), testing::HasSubstr("is of another trial: engines is [\"engine\"] there, and"));
  settings.hparams = before;
  set("overwrite_deepspeed_args", Dict{{"train_micro_batch_size_per_gpu", 3}});
  EXPECT_THAT(refusal(), testing::HasSubstr("train_batch_size is 2 there, and 3 here"));
  settings.hparams = before;
  try {
    gannet::run_trial<OtherTrial>(settings);
    ADD_FAILURE() << "it ran";
  } catch (const gannet::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("OtherTrial\" here"));
  }
  set("dropout", 0.5);
  settings.max_length = TrialLength::batches(4);
  settings.allow_changed_hparams = true;
  EXPECT_EQ(refusal(), "the trial ran");
}

TEST_F(TrialRefusal, OfSettings) {
  settings.max_length = {};
  settings.keep_checkpoints = -1;
  const std::string message = refusal();
  EXPECT_THAT(message, testing::HasSubstr("max_length is not given"));
  EXPECT_THAT(message, testing::HasSubstr("keep_checkpoints is -1"));
}

// It was a trial of no batches, which is complete.
TEST_F(TrialRefusal, OfALengthBeyondTheIntegers) {
  settings.max_length = TrialLength::epochs(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(refusal(), testing::HasSubstr("9223372036854775807 epochs are more batches than can be counted"));
}

}  // namespace
