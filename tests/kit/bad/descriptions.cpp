// Rules that use what describe() is given, or describe themselves as the contract does not allow.
#include "full.h"

namespace {

using namespace bad;

// ---- gannet_optimizer_context and gannet_optimizer_description
struct ContextKept : Full {
  using Full::Full;
  void prepare(const gannet_optimizer_context& context) { context_ = &context; }
  void update(const gannet_update_args& given) {
    gannet_update_args a = given;
    a.grad_scale *= static_cast<double>(context_->group_count > 0 ? 1 : 2);
    Full::update(a);
  }
  const gannet_optimizer_context* context_ = nullptr;
};
struct ContextGroupUsed : Full {
  using Full::Full;
  void prepare(const gannet_optimizer_context& context) { factor_ = 1 + 0.25 * context.group; }
  void update(const gannet_update_args& given) {
    gannet_update_args a = given;
    a.grad_scale *= factor_;
    Full::update(a);
  }
  double factor_ = 1;
};
struct ContextRankUsed : ContextGroupUsed {
  using ContextGroupUsed::ContextGroupUsed;
  void prepare(const gannet_optimizer_context& context) { factor_ = 1 + 0.25 * context.rank; }
};
struct ContextWorldUsed : ContextGroupUsed {
  using ContextGroupUsed::ContextGroupUsed;
  void prepare(const gannet_optimizer_context& context) { factor_ = 1 + 0.25 * context.world_size; }
};
struct ContextCountUsed : ContextGroupUsed {
  using ContextGroupUsed::ContextGroupUsed;
  void prepare(const gannet_optimizer_context& context) { factor_ = 1 + 0.25 * context.group_count; }
};
struct ContextStrideIgnored : ContextGroupUsed {
  using ContextGroupUsed::ContextGroupUsed;
  void prepare(const gannet_optimizer_context& context) {
    factor_ = 1;
    for (uint64_t t = 0; t < context.tensor_count; ++t) factor_ += 1e-3 * static_cast<double>(context.tensors[t].numel % 5);
  }
};
struct ContextWritten : Full {
  using Full::Full;
  void prepare(const gannet_optimizer_context& context) { writable(context.device) = context.device; }
};
struct DescriptionByRank : Full {
  using Full::Full;
  void prepare(const gannet_optimizer_context& context) { rank_ = context.rank; }
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    if (rank_ > 0) all[kTotal].initial_value = 1;
    return all;
  }
  uint32_t rank_ = 0;
};
struct StateNameless : Full {
  using Full::Full;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    all[kTotal].name = "";
    return all;
  }
};
struct StateExtentUnknown : Full {
  using Full::Full;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    all[kTotal].extent = 77;
    return all;
  }
};
struct StateTypeUnknown : Full {
  using Full::Full;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    all[kTotal].dtype = 77;
    return all;
  }
};
struct StateFlagUnknown : Full {
  using Full::Full;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    all[kMomentum].flags = 1u << 9;
    return all;
  }
};
struct StateBlockMissing : Full {
  using Full::Full;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    all.push_back(state("scales", GANNET_STATE_PER_BLOCK, GANNET_FLOAT32));
    return all;
  }
};
struct StateBlockAlone : Full {
  using Full::Full;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    all[kMomentum].block = 64;
    return all;
  }
};
struct StateLimitAlone : Full {
  using Full::Full;
  std::vector<gannet_state_spec> states() const {
    std::vector<gannet_state_spec> all = Full::states();
    all[kMomentum].limit = 64;
    return all;
  }
};
struct SumScopeUnknown : Full {
  using Full::Full;
  std::vector<gannet_sum_spec> wanted_sums() const {
    std::vector<gannet_sum_spec> all = Full::wanted_sums();
    all[kSquares].scope = 77;
    return all;
  }
};
struct SumOperationUnknown : Full {
  using Full::Full;
  std::vector<gannet_sum_spec> wanted_sums() const {
    std::vector<gannet_sum_spec> all = Full::wanted_sums();
    all[kSquares].reduce_op = 77;
    return all;
  }
};
struct SumRoundsBackwards : Full {
  using Full::Full;
  std::vector<gannet_sum_spec> wanted_sums() const {
    std::vector<gannet_sum_spec> all = Full::wanted_sums();
    std::reverse(all.begin(), all.end());
    return all;
  }
};
struct SumPassUnclaimed : Full {
  using Full::Full;
  std::vector<gannet_sum_spec> wanted_sums() const {
    std::vector<gannet_sum_spec> all = Full::wanted_sums();
    all[kSquares].pass = GANNET_PASS_PERTURB;
    return all;
  }
};
struct AlignmentOdd : Full {
  using Full::Full;
  uint64_t range_alignment() const { return 3; }
};
struct WorkspaceUnclaimed : Full {
  using Full::Full;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_SEED; }
};
struct CapabilityUnknown : Full {
  using Full::Full;
  uint64_t capabilities() const { return Full::capabilities() | uint64_t{1} << 40; }
};
// clang-format off
#define ALL_FIELDS(X)                                                                     \
  X(ContextKept, "contextkept") X(ContextGroupUsed, "contextgroupused")                   \
  X(ContextRankUsed, "contextrankused") X(ContextWorldUsed, "contextworldused")           \
  X(ContextCountUsed, "contextcountused") X(ContextStrideIgnored, "contextstrideignored") \
  X(ContextWritten, "contextwritten") X(DescriptionByRank, "descriptionbyrank")           \
  X(StateNameless, "statenameless") X(StateExtentUnknown, "stateextentunknown")           \
  X(StateTypeUnknown, "statetypeunknown") X(StateFlagUnknown, "stateflagunknown")         \
  X(StateBlockAlone, "stateblockalone") X(StateLimitAlone, "statelimitalone")             \
  X(SumScopeUnknown, "sumscopeunknown") X(SumOperationUnknown, "sumoperationunknown")     \
  X(SumRoundsBackwards, "sumroundsbackwards") X(SumPassUnclaimed, "sumpassunclaimed")     \
  X(AlignmentOdd, "alignmentodd") X(WorkspaceUnclaimed, "workspaceunclaimed")             \
  X(CapabilityUnknown, "capabilityunknown") X(StateBlockMissing, "stateblockmissing")
// clang-format on

#define PROVIDED(type, name) " optimizer/" name
#define RULE(type, name) , optimizer<type>(#type, "", "1.0", "describes itself wrongly")

struct Described : Full {  // sound
  using Full::Full;
};

}  // namespace

GANNET_PLUGINS("optimizer/described" ALL_FIELDS(PROVIDED), GANNET_TIER_STABLE,
               optimizer<Described>("Described", "", "1.0", "sound") ALL_FIELDS(RULE))
