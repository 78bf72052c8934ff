// LibTorch's operators on the checked device give what they give on the CPU, forward and backward.
#include <torch/torch.h>

#include "accelerators/checked_device.h"

namespace gannet::test {
namespace {

TEST_F(CheckedDevice, ComputesWhatTheCpuComputes) {
  torch::manual_seed(1);
  const at::Tensor x = torch::randn({4, 6}), w = torch::randn({6, 5});
  const at::Tensor dx = x.to(kChecked), dw = w.to(kChecked);
  EXPECT_TRUE(torch::equal(torch::tanh(dx.matmul(dw)).cpu(), torch::tanh(x.matmul(w))));
  EXPECT_TRUE(torch::equal(dx.t().contiguous().cpu(), x.t()));
  EXPECT_TRUE(torch::equal(dx.slice(1, 1, 4).add_(1).cpu(), x.slice(1, 1, 4) + 1)) << "a view is written in place";
  EXPECT_TRUE(torch::equal(dx.slice(1, 0, 1).cpu(), x.slice(1, 0, 1)));
  EXPECT_TRUE(torch::equal(torch::cat({dw, dw}).cpu(), torch::cat({w, w})));
  EXPECT_TRUE(torch::equal(std::get<1>(dw.topk(2)).cpu(), std::get<1>(w.topk(2))));
  EXPECT_TRUE(torch::equal(dw.masked_select(dw > 0).cpu(), w.masked_select(w > 0)));
  EXPECT_TRUE(torch::equal(dw.index({torch::tensor({1, 3})}).cpu(), w.index({torch::tensor({1, 3})})));
  EXPECT_TRUE(torch::equal(dw.unfold(0, 2, 2).cpu(), w.unfold(0, 2, 2)));
  at::Tensor out = torch::empty({0}, kChecked);
  torch::mm_out(out, dx.slice(1, 0, 6), dw);  // grows
  EXPECT_EQ(out.sizes(), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(torch::arange(5, kChecked).sum().item<int64_t>(), 10);
  at::Tensor sparse_rows = torch::zeros({5, 2}, kChecked);
  sparse_rows.index_put_({torch::tensor({0, 4}, kChecked)}, torch::ones({2, 2}, kChecked));
  EXPECT_EQ(sparse_rows.sum().item<float>(), 4.f);
}

TEST_F(CheckedDevice, ConvolutionsAndTheirGradientsAreTheCpus) {
  torch::manual_seed(2);
  const at::Tensor image = torch::randn({2, 3, 8, 8}), weight = torch::randn({4, 3, 3, 3}), bias = torch::randn({4});
  std::vector<at::Tensor> grads[2];
  for (const bool there : {false, true}) {
    const auto leaf = [&](const at::Tensor& tensor) {
      return tensor.to(there ? kChecked : c10::Device("cpu")).detach().clone().requires_grad_();
    };
    const at::Tensor i = leaf(image), w = leaf(weight), b = leaf(bias);
    torch::conv2d(i, w, b, 1, 1).square().sum().backward();
    for (const at::Tensor& each : {i, w, b}) grads[there].push_back(each.grad().cpu());
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(torch::allclose(grads[0][i], grads[1][i], 1e-5, 1e-5)) << i;
}

// A transformer block and the operators around it.
TEST_F(CheckedDevice, AttentionAndItsGradientsAreTheCpus) {
  torch::manual_seed(3);
  const at::Tensor table = torch::randn({20, 16}), tokens = torch::randint(20, {2, 6}), gain = torch::ones({16});
  std::vector<at::Tensor> results[2];
  for (const bool there : {false, true}) {
    const c10::Device device = there ? kChecked : c10::Device("cpu");
    const at::Tensor weight = table.to(device).detach().clone().requires_grad_(),
                     scale = gain.to(device).clone().requires_grad_();
    const at::Tensor x = torch::layer_norm(torch::embedding(weight, tokens.to(device)), {16}, scale);
    const at::Tensor heads = x.view({2, 6, 4, 4}).transpose(1, 2);
    const at::Tensor mixed =
        at::scaled_dot_product_attention(heads, heads, heads, {}, 0.0, true).transpose(1, 2).reshape({12, 16});
    const at::Tensor loss = torch::cross_entropy_loss(mixed.matmul(weight.t()), tokens.to(device).view(-1));
    loss.backward();
    for (const at::Tensor& each : {loss.detach(), weight.grad(), scale.grad()}) results[there].push_back(each.cpu());
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(torch::allclose(results[0][i], results[1][i], 1e-5, 1e-6)) << i;
}

// Products of complex numbers and what is conjugated lazily, forward and backward.
TEST_F(CheckedDevice, TransformsOfFourierAndTheirGradientsAreTheCpus) {
  torch::manual_seed(4);
  const at::Tensor signal = torch::randn({3, 16}), weight = torch::randn({9, 2});
  std::vector<at::Tensor> results[2];
  for (const bool there : {false, true}) {
    const auto leaf = [&](const at::Tensor& tensor) {
      return tensor.to(there ? kChecked : c10::Device("cpu")).detach().clone().requires_grad_();
    };
    const at::Tensor x = leaf(signal), w = leaf(weight);
    const at::Tensor spectrum = torch::fft::rfft(x) * torch::view_as_complex(w);
    (torch::fft::irfft(spectrum).pow(2).sum() + torch::real(spectrum.conj() * spectrum).sum()).backward();
    const at::Tensor negative = torch::imag(spectrum.conj());  // also lazily
    for (const at::Tensor& each : {x.grad(), w.grad(), spectrum.detach().conj().resolve_conj(), negative.detach().clone()})
      results[there].push_back(each.cpu());
  }
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(torch::allclose(results[0][i], results[1][i], 1e-5, 1e-5)) << i;
}

TEST_F(CheckedDevice, RecurrentLayersAndTheirGradientsAreTheCpus) {
  const auto compare = [](const auto& make, const auto& run) {
    std::vector<at::Tensor> results[2];
    for (const bool there : {false, true}) {
      torch::manual_seed(5);
      auto layer = make();
      at::Tensor x = torch::randn({7, 2, 4});
      std::vector<at::Tensor> leaves;
      for (at::Tensor& parameter : layer->parameters())
        if (there) {
          parameter.unsafeGetTensorImpl()->_change_backend_component_keys(kChecked);
          parameter.set_data(parameter.detach().to(kChecked));
        }
      if (there) x = x.to(kChecked);
      x.requires_grad_();
      run(layer, x).pow(2).sum().backward();
      results[there].push_back(x.grad().cpu());
      for (const at::Tensor& parameter : layer->parameters()) results[there].push_back(parameter.grad().cpu());
    }
    for (size_t i = 0; i < results[0].size(); ++i) EXPECT_TRUE(torch::allclose(results[0][i], results[1][i], 1e-5, 1e-5)) << i;
  };
  const auto first = [](auto& layer, const at::Tensor& x) { return std::get<0>(layer->forward(x)); };
  compare([] { return torch::nn::RNN(4, 5); }, first);
  compare([] { return torch::nn::GRU(torch::nn::GRUOptions(4, 5).num_layers(2)); }, first);
  compare([] { return torch::nn::LSTM(torch::nn::LSTMOptions(4, 5).bidirectional(true)); }, first);
  compare([] { return torch::nn::GRUCell(4, 5); }, [](auto& cell, const at::Tensor& x) { return cell->forward(x[0]); });
  compare([] { return torch::nn::LSTMCell(torch::nn::LSTMCellOptions(4, 5).bias(false)); },
          [](auto& cell, const at::Tensor& x) { return std::get<1>(cell->forward(x[0])); });
}

}  // namespace
}  // namespace gannet::test
