// The two sides of every row: plain LibTorch, and the engine. A row is one function that both run.
//
//   ROW(clamped_weights, kEqual) {
//     auto t = side.trainer();
//     for (int step = 0; step < 4; ++step) {
//       t->train(1);
//       torch::NoGradGuard no_grad;
//       for (auto& p : t->model->parameters()) p.clamp_(-0.1, 0.1);
//     }
//   }
//
// The plain side trains on all ranks' samples in one process: the mean of their losses has the gradient that ranks average.
#pragma once

#include <gannet/gannet.h>
#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace guest {

struct Setting {
  int64_t stage = 0;
  bool is_sharded = false;  // stage 3 with nothing that stays whole
  bool is_offloaded = false;
  std::string dtype = "fp32";
  int64_t rank = 0, world = 1;
  std::string text() const;
};
// Where both sides train: the device of GANNET_TEST_ACCELERATOR (the CPU, where it is not set), once an engine has opened it.
at::Device device();
bool is_on_cpu();                                // known from the start
void move_to_device(torch::nn::Module& module);  // as module.to(device())
inline bool at_least_fp32(const Setting& setting) { return setting.dtype == "fp32" || setting.dtype == "fp64"; }

struct Model : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x, const at::Tensor& y) = 0;
};

// Linear(8, 16), tanh, Linear(16, 4), mse.
struct Net : Model {
  Net();
  at::Tensor features(const at::Tensor& x);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override;
  torch::nn::Linear first{nullptr}, second{nullptr};
};

template <class M, class... Arguments>
std::shared_ptr<M> make(int64_t seed, Arguments... arguments) {
  torch::manual_seed(seed);
  return std::make_shared<M>(arguments...);
}

struct Options {
  int64_t accumulation = 1;
  double clipping = 0, lr = 0.05, momentum = 0.9, weight_decay = 0.01;
  gannet::Dict config = {};                         // further members of the config
  std::vector<gannet::ParameterGroup> groups = {};  // plain: only these are trained
};

class Trainer {
 public:
  virtual ~Trainer() = default;
  std::shared_ptr<Model> model;
  int64_t next = 0;  // micro-batch

  virtual at::Tensor forward(int64_t index) = 0;  // the loss of micro-batch `index`
  virtual void backward(const at::Tensor& loss, bool create_graph = false) = 0;
  virtual bool step() = 0;  // true: applied
  virtual void zero_grad() = 0;
  virtual void set_accumulation(int64_t micro_batches) = 0;
  virtual void set_boundary(std::optional<bool> is_boundary) = 0;
  virtual void set_lr(double lr) = 0;
  virtual void each_gradient(const std::function<void(at::Tensor&)>& body) = 0;  // averaged, unscaled; written back
  // The scale with which the program seeds LibTorch's own backward.
  virtual at::Tensor scale(const at::Tensor& loss) = 0;
  virtual bool step_is_empty() const = 0;                  // no micro-batch of the next step has ended
  virtual std::map<std::string, at::Tensor> values() = 0;  // of trained parameters, fp64

  void micro_batch() {
    backward(forward(next++));
    step();
  }
  void train(int64_t steps);  // whole steps
  int64_t accumulation = 1;
  gannet::EngineBase* engine = nullptr;  // null: plain
  // Micro-batch `index` on `rank`: 4 samples.
  static std::pair<at::Tensor, at::Tensor> batch(int64_t index, int64_t rank, int64_t world);
};

std::shared_ptr<Trainer> make_plain(std::shared_ptr<Model> model, const Setting& setting, const Options& options);

class Side {
 public:
  Side(const Setting& setting, bool is_plain) : setting(setting), is_plain(is_plain) {}
  Setting setting;
  bool is_plain;
  std::shared_ptr<Trainer> trainer(std::shared_ptr<Model> model = nullptr, const Options& options = {});
  gannet::Dict config(const Options& options) const;
  std::vector<std::shared_ptr<Trainer>> trainers;  // in the order of their making; their values are compared at the end
  void drop(std::shared_ptr<Trainer>& trainer);    // ends it, and stops comparing it
};

// `body` under a zero::GatheredParameters guard where an engine trains, under NoGradGuard on both sides. `writes`: rank 0's
// values go to all ranks.
void under_guard(Trainer& trainer, const std::vector<at::Tensor>& parameters, bool writes, const std::function<void()>& body);

// Seven micro-batches, two to a step; a tensor hook of the program throws in the fourth one's backward.
void train_past_a_failing_backward(Side& side, const std::function<void(Trainer&)>& micro_batch);

// Expected outcome of a row. kTold rows name the text that the error must contain.
struct Row {
  std::string name;
  std::string told;  // "": equal to plain LibTorch
  std::function<void(Side&)> program;
  std::function<bool(const Setting&)> applies;  // null: everywhere
};
std::vector<Row>& rows();

struct Adder {
  Adder(Row row) { rows().push_back(std::move(row)); }
};

struct Outcome {
  enum Kind { kEqual, kTold, kThird } kind = kThird;
  std::string text;
};
// Runs the row on both sides in this process and compares.
Outcome run(const Row& row, const Setting& setting);

}  // namespace guest

#define ROW(name, told)                                                                 \
  static void name##_row(guest::Side& side);                                            \
  static const guest::Adder name##_added(guest::Row{#name, told, name##_row, nullptr}); \
  static void name##_row([[maybe_unused]] guest::Side& side)
#define ROW_WHERE(name, told, applies)                                                  \
  static void name##_row(guest::Side& side);                                            \
  static const guest::Adder name##_added(guest::Row{#name, told, name##_row, applies}); \
  static void name##_row([[maybe_unused]] guest::Side& side)
