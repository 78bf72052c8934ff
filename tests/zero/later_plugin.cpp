// Optimizers that use what ABI 2.1 added to 2.0: random numbers, a workspace, squares of a tensor's rows and columns.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <gannet/sdk.hpp>
#include <gannet/sdk_random.hpp>

namespace {

using namespace gannet::sdk;

// SGD with noise, a bf16 momentum that is rounded at random, and all new momenta in the workspace before one is stored.
struct Noisy : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2"), number("noise", "1e-3", "of each update, either way")};
  Noisy(const gannet_host& host, const Params& params) : OptimizerBase(host, params), noise_(params.number("noise")) {}
  uint64_t capabilities() const {
    return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_SEED | GANNET_OPTIMIZER_USES_WORKSPACE;
  }
  std::vector<gannet_state_spec> states() const {
    return {state("momentum", GANNET_STATE_PER_ELEMENT, GANNET_BFLOAT16), state("drawn", GANNET_STATE_SCALAR, GANNET_FLOAT64)};
  }
  uint64_t workspace_bytes() const { return 64; }
  uint64_t workspace_bytes_per_element() const { return sizeof(float); }

  void begin_step(const gannet_step_args& args) {
    if (args.seed == 0 || args.workspace_bytes != 64 || !args.workspace) throw Failure(GANNET_INTERNAL, "a step lacks something");
    std::memset(args.workspace, 0x7f, args.workspace_bytes);
    *static_cast<double*>(args.states[1]) = static_cast<double>(args.seed >> 11);
  }
  void update(const gannet_update_args& args) {
    if (args.workspace_bytes != 64 + args.numel * sizeof(float) || reinterpret_cast<uintptr_t>(args.workspace) % 64 != 0)
      throw Failure(GANNET_INTERNAL, "the workspace is not what was asked for");
    auto* param = static_cast<float*>(args.param);
    auto* momentum = static_cast<uint16_t*>(args.states[0]);
    const auto* grad = static_cast<const float*>(args.grad);
    auto* fresh = reinterpret_cast<float*>(static_cast<char*>(args.workspace) + 64);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = segment(args, s);
      const ElementRandom rounding(args, part), noise(args, part, 1);
      parallel_for(part.numel, 64, [&](uint64_t begin, uint64_t end) {
        for (uint64_t i = part.offset + begin; i < part.offset + end; ++i)
          fresh[i] = 0.9f * widened(momentum[i]) + static_cast<float>(grad[i] * args.grad_scale);
        for (uint64_t i = part.offset + begin; i < part.offset + end; ++i) {
          momentum[i] = stochastic_bfloat16(fresh[i], rounding.bits(i));
          param[i] -= static_cast<float>(args.hyper[0] * widened(momentum[i]) + noise_ * (noise.uniform(i) - 0.5));
        }
      });
    }
  }

 private:
  static float widened(uint16_t half) {
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    float value = 0;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  double noise_;
};

// Shampoo (Gupta, Koren, Singer 2018, algorithm 1): the gradient between the inverse fourth roots of L = sum G G^T and
// R = sum G^T G. A side whose square would be too large is left out; vectors are SGD's.
struct Shampoo : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2"), integer("limit", "64", "rows of a square"),
                                                  number("eps", "1e-2", "on the diagonals in the beginning")};
  Shampoo(const gannet_host& host, const Params& params)
      : OptimizerBase(host, params), limit_(static_cast<uint64_t>(params.integer("limit"))), eps_(params.number("eps")) {}
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR | GANNET_OPTIMIZER_USES_WORKSPACE; }
  std::vector<gannet_state_spec> states() const {
    return {square_state("left", GANNET_STATE_ROW_SQUARE, limit_, eps_), state("updates", GANNET_STATE_PER_TENSOR),
            square_state("right", GANNET_STATE_COLUMN_SQUARE, limit_, eps_)};
  }
  uint64_t workspace_bytes() const { return 3 * limit_ * limit_ * sizeof(double); }
  uint64_t workspace_bytes_per_element() const { return 2 * sizeof(double); }

  void update(const gannet_update_args& args) {
    auto* param = static_cast<float*>(args.param);
    const auto* grad = static_cast<const float*>(args.grad);
    auto* roots = static_cast<double*>(args.workspace);
    double *g = roots + 3 * limit_ * limit_, *between = g + args.numel;
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = segment(args, s);
      if (part.numel != part.tensor_numel) throw Failure(GANNET_INTERNAL, "a part of a tensor");
      const uint64_t rows = part.matrix_rows, columns = part.columns;
      for (uint64_t i = 0; i < part.numel; ++i) g[i] = grad[part.offset + i] * args.grad_scale;
      for (uint64_t m = 0; m < part.numel / (rows * columns); ++m) {
        double* const matrix = g + m * rows * columns;
        float *left = square<float>(args, s, 0), *right = square<float>(args, s, 2);
        if (left) {
          left += m * rows * rows;
          add_products(left, rows, columns, [&](uint64_t row, uint64_t k) { return matrix[row * columns + k]; });
        }
        if (right) {
          right += m * columns * columns;
          add_products(right, columns, rows, [&](uint64_t column, uint64_t k) { return matrix[k * columns + column]; });
        }
        if (left) {
          inverse_fourth_root(left, rows, roots);
          multiply(roots, matrix, rows, rows, columns, between);
          std::copy_n(between, rows * columns, matrix);
        }
        if (right) {
          inverse_fourth_root(right, columns, roots);
          multiply(matrix, roots, rows, columns, columns, between);
          std::copy_n(between, rows * columns, matrix);
        }
      }
      for (uint64_t i = 0; i < part.numel; ++i) param[part.offset + i] -= static_cast<float>(args.hyper[0] * g[i]);
    }
  }
  void end_step(const gannet_step_args& args) {
    for (uint64_t t = 0; t < args.tensor_count; ++t) ++static_cast<float*>(args.states[1])[t];
  }

 private:
  // square [n][n] += the products of each two of n vectors of `length` elements.
  template <class Element>
  static void add_products(float* square, uint64_t n, uint64_t length, const Element& element) {
    for (uint64_t a = 0; a < n; ++a)
      for (uint64_t b = 0; b < n; ++b)
        for (uint64_t k = 0; k < length; ++k) square[a * n + b] += static_cast<float>(element(a, k) * element(b, k));
  }
  // result [rows][columns] = x [rows][inner] times y [inner][columns].
  static void multiply(const double* x, const double* y, uint64_t rows, uint64_t inner, uint64_t columns, double* result) {
    for (uint64_t r = 0; r < rows; ++r)
      for (uint64_t c = 0; c < columns; ++c) {
        double sum = 0;
        for (uint64_t k = 0; k < inner; ++k) sum += x[r * inner + k] * y[k * columns + c];
        result[r * columns + c] = sum;
      }
  }
  // Of a symmetric positive matrix [n][n] into `root` [n][n], by Jacobi rotations; `root` has room
  // for two more after it.
  static void inverse_fourth_root(const float* matrix, uint64_t n, double* root) {
    double *a = root + n * n, *v = a + n * n;
    std::copy_n(matrix, n * n, a);
    for (uint64_t i = 0; i < n * n; ++i) v[i] = i % (n + 1) == 0;
    for (int sweep = 0; sweep < 30; ++sweep)
      for (uint64_t p = 0; p < n; ++p)
        for (uint64_t q = p + 1; q < n; ++q) {
          if (std::fabs(a[p * n + q]) < 1e-15 * std::sqrt(std::fabs(a[p * n + p] * a[q * n + q]))) continue;
          const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
          const double t = (theta < 0 ? -1 : 1) / (std::fabs(theta) + std::sqrt(theta * theta + 1));
          const double c = 1 / std::sqrt(t * t + 1), s = t * c;
          for (uint64_t k = 0; k < n; ++k) turn(a[k * n + p], a[k * n + q], c, s);
          for (uint64_t k = 0; k < n; ++k) turn(a[p * n + k], a[q * n + k], c, s);
          for (uint64_t k = 0; k < n; ++k) turn(v[k * n + p], v[k * n + q], c, s);
        }
    for (uint64_t i = 0; i < n; ++i)
      for (uint64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (uint64_t k = 0; k < n; ++k) sum += v[i * n + k] * v[j * n + k] / std::sqrt(std::sqrt(a[k * n + k]));
        root[i * n + j] = sum;
      }
  }
  static void turn(double& x, double& y, double c, double s) {
    const double old = x;
    x = c * x - s * y;
    y = s * old + c * y;
  }
  uint64_t limit_;
  double eps_;
};

// Forbidden contents of a description.
struct Wrong : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2"), text("what", "\"limit\"", nullptr, "what is wrong")};
  Wrong(const gannet_host& host, const Params& params) : OptimizerBase(host, params), what_(params.text("what")) {}
  uint64_t capabilities() const {
    return (what_ == "parts" ? GANNET_OPTIMIZER_ELEMENTWISE : GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR) |
           (what_ == "no bytes" || what_ == "many bytes" ? GANNET_OPTIMIZER_USES_WORKSPACE : 0);
  }
  std::vector<gannet_state_spec> states() const {
    if (what_ == "limit") return {square_state("s", GANNET_STATE_ROW_SQUARE, 20000)};
    if (what_ == "parts") return {square_state("s", GANNET_STATE_COLUMN_SQUARE, 64)};
    if (what_ == "a limit of another") return {square_state("s", GANNET_STATE_PER_TENSOR, 64)};
    return {};
  }
  uint64_t workspace_bytes() const { return what_ == "unclaimed" ? 64 : 0; }
  uint64_t workspace_bytes_per_element() const { return what_ == "many bytes" ? 5000 : 0; }
  void update(const gannet_update_args&) {}

 private:
  std::string what_;
};

}  // namespace

GANNET_PLUGINS("optimizer/noisy optimizer/shampoo optimizer/wrong", GANNET_TIER_STABLE,
               optimizer<Noisy>("Noisy", "", "1.0.0", "SGD with noise"),
               optimizer<Shampoo>("Shampoo", "", "1.0.0", "Shampoo, as a test of squares"),
               optimizer<Wrong>("Wrong", "", "1.0.0", "what a description may not say"))
