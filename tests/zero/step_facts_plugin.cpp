// Optimizers that use what ABI 2.4 added: the loss, the length of the run, metrics, low-rank factors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gannet/sdk_elementwise.hpp>

GANNET_RULES_BEGIN

// A Polyak step: lr * loss / (|g|^2 + 1), which decays linearly over a run of known length.
template <class T>
struct Polyak {
  static constexpr bool kUsesLoss = true;
  static constexpr gannet_param_spec kParams[] = {learning_rate("0.1")};
  static constexpr gannet_sum_spec kSums[] = {sum(GANNET_SUM_OF_MODEL)};
  T rate;
  explicit Polyak(const Step& s) : rate(T(rate_of(s))) {}
  template <class AnyStep>
  static double rate_of(const AnyStep& s) {
    const double left = s.total_steps() == 0 ? 1 : 1 - double(s.count() - 1) / double(s.total_steps());
    return s("lr") * left * (std::isfinite(s.loss()) ? s.loss() : 0) / (s.sum(0) + 1);
  }
  static std::vector<gannet_state_spec> states(const RuleParams&) {
    return {state("seen_loss", GANNET_STATE_SCALAR, GANNET_FLOAT64), state("seen_steps", GANNET_STATE_SCALAR, GANNET_FLOAT64)};
  }
  static void end_step(const GroupStep& s) {
    s.kept<double>(0) = s.loss();
    s.kept<double>(1) = double(s.total_steps());
    s.host().metric("rate", rate_of(s));
  }
  template <class V>
  GANNET_DEVICE void terms(V g, V, Term<V>& squares) const {
    squares = product(g, g);
  }
  template <class V>
  GANNET_DEVICE void operator()(V g, V& p) const {
    p = p - rate * g;
  }
};

GANNET_RULES_END

GANNET_ELEMENTWISE(Polyak)

#if GANNET_RULE_IS_LAST
namespace {

using namespace gannet::sdk;

// Adds the columns of the gradient to a factor of 3 columns (element e of a row to column e % 3), and the rows likewise;
// then steps against the gradient, scaled by both.
struct Projected : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2")};
  using OptimizerBase::OptimizerBase;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR; }
  std::vector<gannet_state_spec> states() const {
    return {factor_state("left", GANNET_STATE_ROW_FACTOR, 3, 1), factor_state("right", GANNET_STATE_COLUMN_FACTOR, 3, 0.5)};
  }
  void update(const gannet_update_args& a) {
    auto* const p = static_cast<float*>(a.param);
    const auto* const g = static_cast<const float*>(a.grad);
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      auto *const left = square<float>(a, s, 0), *const right = square<float>(a, s, 1);
      const uint64_t rows = part.matrix_rows, columns = part.columns, width = std::min<uint64_t>({3, rows, columns});
      if ((part.dimensions >= 2) != (left != nullptr && right != nullptr))
        throw Failure(GANNET_INTERNAL, "a matrix has factors, and nothing else has");
      for (uint64_t i = 0; i < part.numel; ++i) {
        const uint64_t row = i / columns, column = i / (rows * columns) * columns + i % columns;
        float scale = 1;
        if (left) {
          float &l = left[row * width + i % columns % width], &r = right[column * width + row % rows % width];
          l += 0.1f * g[part.offset + i];
          r += 0.1f * g[part.offset + i];
          scale = 1 / (1 + std::abs(l) + std::abs(r));
        }
        p[part.offset + i] -= static_cast<float>(a.hyper[0] * a.grad_scale) * scale * g[part.offset + i];
      }
    }
  }
};

// Steps of -lr * loss * gradient, if one of its tensors is of the model's first layer; else -lr * gradient.
struct LossOfFirst : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2")};
  using OptimizerBase::OptimizerBase;
  void prepare(const gannet_optimizer_context& context) {
    for (uint64_t t = 0; t < context.tensor_count; ++t) {
      const auto* const at = reinterpret_cast<const char*>(context.tensors) + t * context.tensor_stride;
      has_first_ |= std::strcmp(reinterpret_cast<const gannet_tensor*>(at)->name, "words.weight") == 0;
    }
  }
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | (has_first_ ? GANNET_OPTIMIZER_USES_LOSS : 0); }
  void update(const gannet_update_args& a) {
    if (std::isfinite(a.loss) != has_first_) throw Failure(GANNET_INTERNAL, "the loss is there where it is claimed");
    const double rate = a.hyper[0] * a.grad_scale * (has_first_ ? a.loss : 1);
    for (uint64_t i = 0; i < a.numel; ++i)
      static_cast<float*>(a.param)[i] -= static_cast<float>(rate) * static_cast<const float*>(a.grad)[i];
  }
  bool has_first_ = false;
};

}  // namespace
#endif

GANNET_ELEMENTWISE_PLUGINS("optimizer/polyak@cpu optimizer/projected@cpu optimizer/lossoffirst@cpu",
                           GANNET_ELEMENTWISE_OPTIMIZER(Polyak, "Polyak", "1.0.0", "a step by the loss"),
                           gannet::sdk::optimizer<Projected>("Projected", "cpu", "1.0.0", "low-rank factors"),
                           gannet::sdk::optimizer<LossOfFirst>("LossOfFirst", "cpu", "1.0.0", "the loss on one stage"))
