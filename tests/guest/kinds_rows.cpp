// Rows: models whose parameters and buffers are not dense fp32 matrices.
#include "guest/trainer.h"

namespace {

using namespace guest;

bool is_fp32(const Setting& setting) { return setting.dtype == "fp32"; }

struct ComplexNet : Net {
  ComplexNet() { spectrum = register_parameter("spectrum", torch::randn({8}, at::kComplexFloat)); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor filtered = at::real(torch::fft::ifft(torch::fft::fft(x.to(at::kFloat)) * spectrum));
    return Net::forward(filtered.to(first->weight.scalar_type()), y);
  }
  at::Tensor spectrum;
};
ROW_WHERE(a_complex_parameter, "", [](const Setting& s) { return s.dtype != "fp64"; }) {
  side.trainer(std::static_pointer_cast<Model>(make<ComplexNet>(1)))->train(4);
}
ROW_WHERE(a_complex_parameter_that_is_written, "", is_fp32) {
  auto model = make<ComplexNet>(1);
  auto t = side.trainer(model);
  t->train(2);
  torch::NoGradGuard no_grad;
  model->spectrum.mul_(0.5);
  torch::AutoGradMode grad(true);
  t->train(2);
}

struct OddBuffers : Net {
  OddBuffers() {
    phases = register_buffer("phases", torch::polar(torch::ones({8}), torch::arange(8).to(at::kFloat)));
    small = register_buffer("small", torch::ones({5}).to(at::kFloat8_e4m3fn));
    counts = register_buffer("counts", torch::ones({3}, at::kShort).to(at::kUInt16));
    graph = register_buffer("graph", torch::eye(8).to_sparse());
    rows = register_buffer("rows", torch::eye(8).to_sparse_csr());
    none = register_buffer("none", at::Tensor());
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor mixed = torch::matmul(graph, x.to(at::kFloat).t()).t() + torch::matmul(rows, x.to(at::kFloat).t()).t();
    return Net::forward((mixed * at::real(phases)).to(first->weight.scalar_type()), y);
  }
  at::Tensor phases, small, counts, graph, rows, none;
};
ROW_WHERE(buffers_of_every_kind, "", [](const Setting& s) { return s.dtype != "fp64"; }) {
  side.trainer(std::static_pointer_cast<Model>(make<OddBuffers>(1)))->train(3);
}

struct OddParameters : Net {
  OddParameters() {
    scalar = register_parameter("scalar", torch::ones({}));
    empty = register_parameter("empty", torch::zeros({0, 3}));
    image = register_parameter("image", torch::randn({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast));
    turned = register_parameter("turned", torch::randn({4, 16}).t().detach().clone(at::MemoryFormat::Preserve));
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor h = features(x) * scalar;
    const at::Tensor out = second(h) + torch::matmul(h, turned) + 0.01 * image.sum() + empty.sum();
    return torch::mse_loss(out.to(y.scalar_type()), y);
  }
  at::Tensor scalar, empty, image, turned;
};
ROW(parameters_of_odd_shapes, "") { side.trainer(std::static_pointer_cast<Model>(make<OddParameters>(1)))->train(3); }

struct Embeds : Net {
  Embeds() { table = register_module("table", torch::nn::Embedding(torch::nn::EmbeddingOptions(10, 8).sparse(true))); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor places = (x.select(1, 0).abs() * 3).to(at::kLong).clamp(0, 9);
    return Net::forward(x.to(table->weight.scalar_type()) + table(places), y);
  }
  torch::nn::Embedding table{nullptr};
};
ROW_WHERE(sparse_gradients, "", at_least_fp32) { side.trainer(std::static_pointer_cast<Model>(make<Embeds>(1)))->train(3); }

struct Unused : Net {
  Unused() { spare = register_module("spare", torch::nn::Linear(16, 4)); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    if (!is_used) return Net::forward(x, y);
    return torch::mse_loss(spare(features(x)).to(y.scalar_type()), y);
  }
  bool is_used = false;
  torch::nn::Linear spare{nullptr};
};
ROW(layers_used_in_turn, "") {
  auto model = make<Unused>(1);
  auto t = side.trainer(model);
  for (int step = 0; step < 5; ++step) {
    model->is_used = step % 2 == 1;
    t->train(1);
  }
}

struct Recurrent : Net {
  Recurrent() { memory = register_module("memory", torch::nn::LSTM(torch::nn::LSTMOptions(8, 8).batch_first(true))); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor out = std::get<0>(memory(x.to(first->weight.scalar_type()).unsqueeze(1))).squeeze(1);
    return Net::forward(out, y);
  }
  torch::nn::LSTM memory{nullptr};
};
ROW_WHERE(a_recurrent_layer, "", at_least_fp32) { side.trainer(std::static_pointer_cast<Model>(make<Recurrent>(1)))->train(3); }

struct Normed : Net {
  Normed() { length = register_parameter("length", torch::ones({16})); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    const at::Tensor weight = first->weight / first->weight.norm(2, {1}, true) * length.unsqueeze(1);
    const at::Tensor h = torch::tanh(at::linear(x.to(weight.scalar_type()), weight, first->bias));
    return torch::mse_loss(second(h).to(y.scalar_type()), y);
  }
  at::Tensor length;
};
ROW(weights_normed_in_forward, "") { side.trainer(std::static_pointer_cast<Model>(make<Normed>(1)))->train(3); }

struct Counts : Net {
  Counts() { seen = register_buffer("seen", torch::zeros({}, at::kLong)); }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& y) override {
    seen.add_(1);
    return Net::forward(x, y);
  }
  at::Tensor seen;
};
ROW(a_buffer_written_in_forward, "") { side.trainer(std::static_pointer_cast<Model>(make<Counts>(1)))->train(3); }

}  // namespace
