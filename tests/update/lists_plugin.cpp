// One rule with and without what ABI 2.3 adds: pieces in lists, and the step's numbers where they are. It uses all that pieces of
// a list share or have for themselves: sums of tensors, of rows and of the model in two rounds, a workspace, random numbers,
// states.
#include <algorithm>
#include <cmath>
#include <gannet/sdk.hpp>
#include <gannet/sdk_float16.hpp>
#include <gannet/sdk_random.hpp>
#include <string>

namespace {

using namespace gannet::sdk;

enum { kMomentum, kNorms, kLongest, kSingle };  // states
enum { kSquares, kRows, kLargest };             // sums

struct Plain : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2"), dynamic_number("damping", "0.5", "of each row"),
                                                  boolean("counts", "false", "whether states say what the host did")};
  Plain(const gannet_host& host, const Params& params) : OptimizerBase(host, params), counts_(params.boolean("counts")) {}
  static constexpr uint64_t kCapabilities =
      GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_SEED | GANNET_OPTIMIZER_USES_WORKSPACE;

  uint64_t capabilities() const { return kCapabilities; }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const {
    return param == GANNET_FLOAT32 && (grad == GANNET_FLOAT32 || grad == GANNET_BFLOAT16) &&
           (out == GANNET_DTYPE_NONE || out == GANNET_BFLOAT16);
  }
  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), state("norms", GANNET_STATE_PER_TENSOR, GANNET_FLOAT64),
            // The host's actions, not a result of training: pieces of the longest list, calls for
            // single pieces.
            state("longest", GANNET_STATE_SCALAR, GANNET_FLOAT64), state("single", GANNET_STATE_SCALAR, GANNET_FLOAT64)};
  }
  std::vector<gannet_sum_spec> wanted_sums() const {
    return {sum(GANNET_SUM_OF_TENSOR), sum(GANNET_SUM_OF_ROW), sum(GANNET_SUM_OF_MODEL, GANNET_MAX, 1)};
  }
  uint64_t workspace_bytes() const { return 64; }
  uint64_t workspace_bytes_per_element() const { return 2 * sizeof(float); }

  static uint64_t row_of(const gannet_segment& part, uint64_t i) {
    return part.first_row + (part.tensor_offset + i - part.offset) / part.columns;
  }
  static float grad_at(const gannet_update_args& a, uint64_t i) {
    return a.grad_dtype == GANNET_BFLOAT16 ? float(static_cast<const BFloat16*>(a.grad)[i])
                                           : static_cast<const float*>(a.grad)[i];
  }

  void sums(const gannet_update_args& a, uint32_t round, double* sums) {
    const StepNumbers numbers(a);
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      double* const own = sums + s * a.sum_count;
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        const double g = grad_at(a, i) * numbers.grad_scale();
        if (round == 0) {
          own[kSquares] += g * g;
          a.lines[kRows][row_of(part, i)] += g * g;
        } else {
          own[kLargest] = std::max(own[kLargest], std::fabs(g) / (1 + std::sqrt(a.sums[s * a.sum_count + kSquares])));
        }
      }
    }
  }
  void update(const gannet_update_args& a) {
    ++single_;
    compute(a);
    store(a);
  }
  void end_step(const gannet_step_args& a) {
    for (uint64_t t = 0; t < a.tensor_count; ++t) static_cast<double*>(a.states[kNorms])[t] = std::sqrt(a.sums[t * a.sum_count]);
    if (!counts_) return;
    *static_cast<double*>(a.states[kLongest]) = static_cast<double>(longest_);
    *static_cast<double*>(a.states[kSingle]) = static_cast<double>(single_);
  }

 protected:
  // The new momenta and parameters, into the workspace.
  static void compute(const gannet_update_args& a) {
    if (a.workspace_bytes != 64 + a.numel * 2 * sizeof(float) || reinterpret_cast<uintptr_t>(a.workspace) % 64 != 0)
      throw Failure(GANNET_INTERNAL, "the workspace is not what was asked for");
    const StepNumbers numbers(a);
    float *momenta = work(a), *params = momenta + a.numel;
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      const ElementRandom noise(a, part);
      const double norm = std::sqrt(a.sums[s * a.sum_count + kSquares]), largest = a.sums[s * a.sum_count + kLargest],
                   before = static_cast<double*>(a.states[kNorms])[part.tensor_index];
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        const double row = std::sqrt(a.lines[kRows][row_of(part, i)]);
        momenta[i] =
            0.9f * static_cast<float*>(a.states[kMomentum])[i] + static_cast<float>(grad_at(a, i) * numbers.grad_scale());
        const double rate = numbers.hyper(0) / (1 + norm + before + largest + numbers.hyper(1) * row) / std::sqrt(numbers.step());
        params[i] = static_cast<float*>(a.param)[i] - static_cast<float>(rate * momenta[i] + 1e-4 * (noise.uniform(i) - 0.5));
      }
    }
  }
  static void store(const gannet_update_args& a) {
    if (StepNumbers(a).is_skipped()) return;
    const float *momenta = work(a), *params = momenta + a.numel;
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      std::copy_n(momenta + part.offset, part.numel, static_cast<float*>(a.states[kMomentum]) + part.offset);
      std::copy_n(params + part.offset, part.numel, static_cast<float*>(a.param) + part.offset);
      if (a.out) narrow(static_cast<BFloat16*>(a.out) + part.offset, params + part.offset, part.numel, a.out_dtype);
    }
  }
  static float* work(const gannet_update_args& a) { return reinterpret_cast<float*>(static_cast<char*>(a.workspace) + 64); }

  bool counts_;
  uint64_t longest_ = 0, single_ = 0;
};

struct Listed : Plain {
  using Plain::Plain;
  uint64_t capabilities() const { return kCapabilities | GANNET_OPTIMIZER_TAKES_LISTS; }
  // All are computed before one is stored: each needs its own workspace.
  void update_many(const Pieces& pieces) {
    longest_ = std::max(longest_, pieces.size());
    for (const auto& a : pieces) compute(a);
    for (uint64_t k = pieces.size(); k-- > 0;) store(pieces[k]);
  }
};

struct OnDevice : Listed {
  using Listed::Listed;
  uint64_t capabilities() const { return Listed::capabilities() | GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS; }
  static void look_at(const gannet_update_args& a) {
    if (!a.device_numbers || a.device_number_count != GANNET_NUMBER_HYPER + 2 || a.hyper || a.hyper_count != 0 || a.step != 0 ||
        !std::isnan(a.grad_scale))
      throw Failure(GANNET_INTERNAL, "the call has numbers of its own");
  }
  void sums(const gannet_update_args& a, uint32_t round, double* sums) {
    look_at(a);
    Plain::sums(a, round, sums);
  }
  void update(const gannet_update_args& a) {
    look_at(a);
    Plain::update(a);
  }
  void update_many(const Pieces& pieces) {
    for (const auto& a : pieces) look_at(a);
    Listed::update_many(pieces);
  }
  void begin_step(const gannet_step_args& a) {
    if (a.step == 0 || a.hyper_count != 2) throw Failure(GANNET_INTERNAL, "begin_step lacks its numbers");
  }
};

// Writes where it must not, in a list.
struct Careless : Listed {
  static constexpr gannet_param_spec kParams[] = {Plain::kParams[0], Plain::kParams[1], Plain::kParams[2],
                                                  text("what", "\"gradient\"", nullptr, "what it writes to")};
  Careless(const gannet_host& host, const Params& params) : Listed(host, params), what_(params.text("what")) {}
  void update_many(const Pieces& pieces) {
    const gannet_update_args& last = pieces[pieces.size() - 1];
    Listed::update_many(pieces);
    if (what_ == "gradient") static_cast<float*>(const_cast<void*>(last.grad))[1] = 7;
    if (what_ == "norms") static_cast<double*>(last.states[kNorms])[0] = 7;
    if (what_ == "workspace") static_cast<char*>(last.workspace)[last.workspace_bytes] = 7;
    if (what_ == "padding") static_cast<float*>(pieces[0].param)[pieces[0].numel] = 7;
  }

 private:
  std::string what_;
};

}  // namespace

GANNET_PLUGINS("optimizer/plain optimizer/listed optimizer/ondevice optimizer/careless", GANNET_TIER_STABLE,
               optimizer<Plain>("Plain", "", "1.0.0", "a rule of 2.1"),
               optimizer<Listed>("Listed", "", "1.0.0", "the same in lists"),
               optimizer<OnDevice>("OnDevice", "", "1.0.0", "the same with device numbers"),
               optimizer<Careless>("Careless", "", "1.0.0", "the same, writing where it must not"))
