// zero::Init shards parameters while the model is still being built.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/intrusive_ptr.h>
#include <gannet/log.h>
#include <gannet/zero.h>

#include <algorithm>
#include <deque>
#include <exception>

#include "base/format.h"
#include "base/text.h"
#include "control/world.h"
#include "engine/open.h"
#include "params/gatherer.h"
#include "params/interception.h"
#include "tensor/absent_storage.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

struct SteplessComm {
  // The parameters are in host memory until an engine takes them, whatever device it trains on.
  explicit SteplessComm(control::Links& links, Comm& host_comm) : comm(links.over(host_comm), [] { return nullptr; }) {}
  Timers timers;
  DeviceComm comm;
};

// The shards of parameters that no engine has taken over. Destroyed when the last of these has been
// taken over, or with the process.
class UnclaimedShards : private SteplessComm, public Gatherer, public std::enable_shared_from_this<UnclaimedShards> {
 public:
  explicit UnclaimedShards(std::shared_ptr<MeshGroups> mesh)
      : SteplessComm(mesh->data().links(), mesh->world().world()->host_comm()),
        Gatherer(&comm, &mesh->data().links().host, timers, std::nullopt, [] { return std::string("the model's construction"); }),
        mesh_(std::move(mesh)),
        residency_(*this, {0, 0, 0}) {}
  ~UnclaimedShards() override { zero::unwatch(&residency_); }

  void add(const at::Tensor& parameter);
  void keep(size_t index, const at::Tensor& whole) override;
  bool write(size_t index, zero::ReadElements read) override;
  void released(size_t index) override;

 private:
  at::Tensor broadcast(const Range& range, const at::Tensor& parameter);

  std::shared_ptr<MeshGroups> mesh_;  // while it lives, an engine with a different layout of the ranks is refused
  std::deque<Range> ranges_;          // one parameter each
  size_t alive_ = 0;
  std::shared_ptr<UnclaimedShards> self_;  // set while it holds a parameter
  zero::Residency residency_;
};

// Returns rank 0's values with the padding of the layout. If there is no padding, they are in the
// parameter's own memory.
at::Tensor UnclaimedShards::broadcast(const Range& range, const at::Tensor& parameter) {
  if (range.layout.numel == parameter.numel()) {
    const at::Tensor own = parameter.detach().view({-1});
    if (comm.size() > 1) comm.broadcast(own, 0).wait();
    return own;
  }
  at::Tensor whole = at::zeros({range.layout.numel}, parameter.options().requires_grad(false));
  whole.narrow(0, 0, parameter.numel()).copy_(parameter.detach().view({-1}));
  if (comm.size() > 1) comm.broadcast(whole, 0).wait();
  return whole;
}

void UnclaimedShards::add(const at::Tensor& parameter) {
  Range& range = ranges_.emplace_back();
  range.dtype = range.master_dtype = parameter.scalar_type();
  range.grad_dtype = at::ScalarType::Undefined;
  range.ranks = {&comm, &mesh_->data().links().host};
  range.shard_alone(parameter.numel(), comm.rank(), comm.size());
  TrainedParameter one;
  one.name = formatted("number {} of shape {}", ranges_.size(), shape_text(parameter.sizes().vec()));
  range.parameters.push_back(std::move(one));
  const zero::Shard& shard = range.shards[0];
  range.param = Array::in_memory(broadcast(range, parameter).narrow(0, shard.offset, shard.numel).clone());
  Gatherer::add(range, 0);
  const size_t id =
      residency_.add(range.parameters[0].name, parameter,
                     "is shared out among the ranks, and no engine has it yet: give the model to gannet::initialize");
  zero::watch(parameter.storage().unsafeGetStorageImpl(), &residency_, id);
  ++alive_;
  self_ = shared_from_this();
}

void UnclaimedShards::keep(size_t index, const at::Tensor& parameter) {
  Range& range = ranges_[index];
  const at::Tensor whole = broadcast(range, parameter);
  range.param.set(0, whole.narrow(0, range.shards[0].offset, range.shards[0].numel));
  if (!whole.is_alias_of(parameter)) parameter.view({-1}).copy_(whole.narrow(0, 0, parameter.numel()));
}

bool UnclaimedShards::write(size_t index, zero::ReadElements read) {
  const zero::Shard& shard = ranges_[index].shards[0];
  const int64_t numel = std::min(shard.numel, residency_.tensor(index).numel() - shard.offset);  // the rest is padding
  if (numel > 0) read(shard.offset, ranges_[index].param.here().narrow(0, 0, numel));
  return true;
}

void UnclaimedShards::released(size_t index) {
  ranges_[index].param = Array();
  if (--alive_ > 0) return;
  const auto last = std::move(self_);  // this may destroy this object
}

}  // namespace

namespace zero {

struct Init::State : public Builder {
  std::shared_ptr<UnclaimedShards> shards;
  int64_t threshold = 0;
  struct BegunParameter {
    at::Tensor parameter;
    bool is_touched = false;  // an operator has worked on it, to initialise it
  };
  std::vector<BegunParameter> begun;  // parameters that are not sharded yet, in the order in which they were first seen
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>
      fresh;  // tensors that may become parameters; registering a parameter is not an operator
  std::unique_ptr<Interception> interception;
  int exceptions = std::uncaught_exceptions();

  void before_making() override;
  void after_operator(const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& made) override;
  void consider(const at::Tensor& leaf, bool is_touched);
  void share_all_but(size_t newest);
  void share(const at::Tensor& parameter);
};

// Experts differ between ranks along the data axis, so they stay unsharded until initialize.
void Init::State::share(const at::Tensor& parameter) {
  const auto split = split_of(parameter);
  if (!split || !split->is_along_expert) shards->add(parameter);
}

// Releases the previous parameter's memory before memory for the next one is allocated.
void Init::State::before_making() {
  at::NoGradGuard no_grad;
  std::erase_if(begun, [&](const BegunParameter& one) {
    if (one.is_touched) share(one.parameter);
    return one.is_touched;
  });
}

void Init::State::consider(const at::Tensor& leaf, bool is_touched) {
  // Only a tensor that does not share its storage can release it.
  const bool is_own = leaf.numel() > threshold && leaf.is_floating_point() && leaf.device().is_cpu() && leaf.is_contiguous() &&
                      leaf.storage_offset() == 0 && leaf.storage().nbytes() == leaf.nbytes();
  if (!is_own || is_watched(leaf.storage().unsafeGetStorageImpl())) return;
  const auto known =
      std::find_if(begun.begin(), begun.end(), [&](const BegunParameter& one) { return one.parameter.is_same(leaf); });
  if (known == begun.end())
    begun.push_back({leaf, is_touched});
  else
    known->is_touched = known->is_touched || is_touched;
}

void Init::State::after_operator(const std::vector<at::Tensor>& leaves, const std::vector<at::Tensor>& made) {
  std::erase_if(fresh, [&](const auto& weak) {
    const auto strong = weak.lock();
    if (!strong) return true;
    const at::Tensor tensor(strong);
    if (!tensor.requires_grad()) return false;
    consider(tensor, false);
    return true;
  });
  for (const at::Tensor& leaf : leaves) consider(leaf, true);
  for (const at::Tensor& tensor : made)
    if (tensor.numel() > threshold && tensor.is_floating_point() && !tensor.requires_grad())
      fresh.emplace_back(tensor.getIntrusivePtr());
  share_all_but(1);
}

void Init::State::share_all_but(size_t newest) {
  at::NoGradGuard no_grad;
  for (; begun.size() > newest; begun.erase(begun.begin())) share(begun.front().parameter);
}

Init::Init(Options options) : state_(std::make_unique<State>()) {
  Config config = std::move(options.config);
  if (!options.overwrite.empty()) config.overwrite(options.overwrite);
  if (config.empty()) throw Error(ErrorCode::kConfig, "zero::Init was given no config", "pass the one that initialize gets");
  // Opens the parts that an engine opens first: the plugins, the device, the ranks and their mesh.
  // The engine will find the ranks open.
  RankContext opened;
  EngineOptions engine_options;
  engine_options.process_group = options.process_group;
  engine_options.mesh = options.mesh;
  engine_options.mpu = options.mpu;
  open_ranks(opened, *config.document(), engine_options);
  const auto& zero = opened.settings().zero;
  if (zero.stage < 3 || opened.comm->size() == 1) {
    if (opened.is_first())
      log_info(formatted("zero::Init has no effect: {}",
                         zero.stage < 3 ? formatted("the ZeRO stage is {}", zero.stage) : "there is one rank"));
    return;
  }
  state_->threshold = zero.param_persistence_threshold;
  state_->shards = std::make_shared<UnclaimedShards>(opened.mesh);
  state_->interception = std::make_unique<Interception>();
  set_builder(state_.get());
}

Init::~Init() {
  if (!state_->shards) return;
  set_builder(nullptr);
  state_->interception.reset();
  if (std::uncaught_exceptions() > state_->exceptions) return;
  try {
    state_->after_operator({}, {});
    state_->share_all_but(0);
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("at the end of zero::Init: ") + error.what());
  }
}

}  // namespace zero
}  // namespace gannet
