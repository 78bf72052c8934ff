// A trial in which a small GPT-2 learns from text on this machine. The library provides the rest:
// the loop, metrics over the ranks, checkpoints, resuming, and handling of SIGTERM.
//
//   trial --hparam lr=1e-3
//   gannet run --num_procs 2 trial --hparams hparams.yaml --max_length "2 epochs" --output_dir run1
#include <gannet/models/gpt2.h>
#include <gannet/trial.h>

#include "data.h"

class GptTrial : public gannet::Trial<at::Tensor> {
 public:
  explicit GptTrial(gannet::TrialContext& context) : context_(context), text_(gpt2::Tokens::from_this_machine().split(0.05)) {
    const gannet::Hparams& hparams = context.get_hparams();
    gannet::models::Gpt2 model(gannet::models::Gpt2Config{.vocab_size = 256,
                                                          .n_positions = 64,
                                                          .n_embd = hparams.get<int64_t>("width"),
                                                          .n_layer = hparams.get<int64_t>("layers"),
                                                          .n_head = 2});
    auto config = gannet::overwrite_deepspeed_config(hparams.get<gannet::Value>("deepspeed_config"),
                                                     hparams.get<gannet::Dict>("overwrite_deepspeed_args"));
    config.fill("optimizer.params.lr", hparams.get<double>("lr"), "hyperparameters");
    engine_ = context.wrap_model_engine(gannet::initialize(model, {.config = config}).engine);
  }
  Loader build_training_data_loader() override {
    return gannet::make_loader<at::Tensor>(lines_of(text_.first), context_.loader_options());
  }
  Loader build_validation_data_loader() override { return context_.make_validation_loader<at::Tensor>(lines_of(text_.second)); }

  gannet::BatchMetrics train_batch(Iterator& iterator, int64_t /*epoch*/, int64_t /*batch*/) override {
    const at::Tensor tokens = context_.to_device(iterator.next());  // shape [micro-batch, 64]
    const at::Tensor loss = engine_->forward(tokens, tokens);
    engine_->backward(loss);
    engine_->step();
    return loss;
  }
  gannet::BatchMetrics evaluate_batch(Iterator& iterator, int64_t /*batch*/) override {
    const at::Tensor tokens = context_.to_device(iterator.next()), loss = engine_->forward(tokens, tokens);
    return {{"loss", loss}, {"perplexity", loss.exp()}};
  }

 private:
  static std::vector<at::Tensor> lines_of(const gpt2::Tokens& text) {
    std::vector<at::Tensor> lines;
    for (int64_t i = 0; i < text.size() / 64; ++i) lines.push_back(text.batch(i, 1, 64).inputs[0]);
    return lines;
  }
  gannet::TrialContext& context_;
  std::pair<gpt2::Tokens, gpt2::Tokens> text_;
  std::shared_ptr<gannet::Engine<gannet::models::Gpt2Impl>> engine_;
};

int main(int argc, char** argv) {
  return gannet::run_trial<GptTrial>(argc, argv,
                                     {.hparams = {{"lr", 1e-3},
                                                  {"width", 64},
                                                  {"layers", 2},
                                                  {"deepspeed_config", TRIAL_SOURCE_DIR "/ds_config.json"},
                                                  {"overwrite_deepspeed_args", gannet::Dict()}},
                                      .settings = {.max_length = gannet::TrialLength::batches(100)}});
}
