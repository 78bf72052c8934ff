#include "activation/saved_store.h"

#include <gannet/error.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "activation/here.h"
#include "activation/unseen.h"
#include "activation/version.h"
#include "activation/view.h"
#include "base/format.h"
#include "base/text.h"
#include "params/interception.h"

namespace gannet::activation {
namespace {

// Byte ranges begin at multiples of this, so that elements of every type stay aligned.
constexpr int64_t kAlignedBytes = 64;

// Bytes [begin, begin + count) of a storage.
struct ByteRange {
  int64_t begin = 0, count = 0;
  bool holds(const ByteRange& other) const { return begin <= other.begin && other.begin + other.count <= begin + count; }
};

ByteRange stretch_of(const at::Tensor& tensor) {
  const auto item = static_cast<int64_t>(tensor.itemsize());
  return {tensor.storage_offset() * item, span_of(tensor) * item};
}

}  // namespace

class SavedStore::Memory : public std::enable_shared_from_this<Memory> {
 public:
  Memory(std::shared_ptr<SavedStore> store, const at::Tensor& tensor, const ByteRange& stretch,
         std::shared_ptr<SavingOrder> order)
      : stretch_(stretch), store_(std::move(store)), order_(std::move(order)) {
    const std::lock_guard lock(order_->mutex);
    number_ = order_->memories.size();
    piece_ = store_->tier_->write(tensor_over(tensor.storage(), tensor.key_set(), View::of_bytes(stretch.begin, stretch.count)),
                                  formatted("saved tensor {} of a forward, {} {}", number_ + 1,
                                            c10::toString(tensor.scalar_type()), shape_text(tensor.sizes())));
  }
  void join() {
    const std::lock_guard lock(order_->mutex);
    order_->memories.push_back(weak_from_this());
  }
  const ByteRange& stretch() const { return stretch_; }

  at::Tensor read(View view) {
    at::Tensor bytes;
    {
      const std::lock_guard lock(mutex_);
      bytes = here();
      read_by_ = torch::autograd::get_current_graph_task_id();
    }
    store_->start_those_before(*order_, number_);
    // Other saved tensors that share this memory may be read soon.
    if (weak_from_this().use_count() > 1) store_->hold(shared_from_this());
    view.offset += (bytes.storage_offset() - stretch_.begin) / static_cast<int64_t>(c10::elementSize(view.dtype));
    return tensor_over(bytes.storage(), bytes.key_set(), view);
  }

  // Returns true if this call started the read. A backward that has read the memory once usually
  // does not read it again.
  bool start_read() {
    const std::lock_guard lock(mutex_);
    if (is_coming_ || !latest_.expired() || read_by_ == torch::autograd::get_current_graph_task_id()) return false;
    piece_->start_read();
    return is_coming_ = true;
  }
  void drop_read() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_coming_, false)) piece_->drop_read();
  }
  void set_held(bool is_held) {
    const std::lock_guard lock(mutex_);
    held_ = is_held ? c10::Storage(latest_.lock()) : c10::Storage();
  }

 private:
  at::Tensor here() {
    if (auto storage = latest_.lock())
      return tensor_over(c10::Storage(std::move(storage)), latest_keys_, View::of_bytes(latest_offset_, stretch_.count));
    is_coming_ = false;
    const at::Tensor bytes = piece_->read();
    latest_ = bytes.storage().getWeakStorageImpl();
    latest_offset_ = bytes.storage_offset();
    latest_keys_ = bytes.key_set();
    return bytes;
  }

  const ByteRange stretch_;
  const std::shared_ptr<SavedStore> store_;
  const std::shared_ptr<SavingOrder> order_;
  size_t number_ = 0;
  std::shared_ptr<TierMemory::TierPiece> piece_;
  std::mutex mutex_;
  c10::weak_intrusive_ptr<c10::StorageImpl> latest_{c10::intrusive_ptr<c10::StorageImpl>()};  // the storage that was read last
  int64_t latest_offset_ = 0;
  c10::DispatchKeySet latest_keys_;
  std::optional<c10::Storage> held_;
  bool is_coming_ = false;
  int read_by_ = -2;  // number of the graph task; initially none
};

struct SavedStore::SavedTensor {
  at::Tensor kept;  // undefined: the tensor is on the tier
  std::optional<View> view;
  std::shared_ptr<Memory> memory;
  Version version;
};

class SavedStore::Hooks : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(SavedStore::Forward& forward) : forward_(forward) {}
  void call_pack_hook(const at::Tensor& tensor) override { forward_.pack(saved_, tensor); }
  at::Tensor call_unpack_hook() override {
    if (saved_.version.has_passed()) throw_changed(saved_.view ? *saved_.view : View(saved_.kept), saved_.version);
    if (saved_.kept.defined()) return saved_.kept;
    const UnobservedScope unseen;
    return saved_.memory->read(*saved_.view);
  }

 private:
  SavedStore::Forward& forward_;  // used only in the pack hook, which is called immediately
  SavedTensor saved_;
};

// Starts reading the tensors that were saved before tensor `number`. If a backward never reads some
// of them, because it ends elsewhere, they are dropped after the next few reads.
void SavedStore::start_those_before(SavingOrder& order, size_t number) {
  std::vector<std::shared_ptr<Memory>> wanted;
  {
    const std::lock_guard lock(order.mutex);
    for (size_t i = number; i > 0 && number - i < kMostOnTheirWay; --i)
      if (auto memory = order.memories[i - 1].lock()) wanted.push_back(std::move(memory));
  }
  std::vector<std::shared_ptr<Memory>> over;
  for (const auto& memory : wanted) {
    if (!memory->start_read()) continue;
    const std::lock_guard lock(mutex_);
    coming_.push_back(memory);
    for (; coming_.size() > 2 * kMostOnTheirWay; coming_.pop_front())
      if (auto earliest = coming_.front().lock()) over.push_back(std::move(earliest));
  }
  for (const auto& memory : over) memory->drop_read();
}

void SavedStore::hold(const std::shared_ptr<Memory>& memory) {
  memory->set_held(true);
  std::vector<std::shared_ptr<Memory>> over;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(held_, [&](const auto& one) { return one.expired() || one.lock() == memory; });
    held_.push_back(memory);
    for (; held_.size() > kMostOnTheirWay; held_.pop_front())
      if (auto earliest = held_.front().lock()) over.push_back(std::move(earliest));
  }
  for (const auto& one : over) one->set_held(false);
}

SavedStore::Forward::Forward(std::shared_ptr<SavedStore> store, std::function<bool(const c10::StorageImpl*)> is_buffer)
    : store_(std::move(store)), is_buffer_(std::move(is_buffer)), keeping_((install_saved_tensor_hooks(), this)) {}

std::unique_ptr<torch::autograd::SavedVariableHooks> SavedStore::Forward::hooks() { return std::make_unique<Hooks>(*this); }

bool SavedStore::Forward::is_moved(const at::Tensor& tensor) const {
  if (!tensor.defined() || !is_plain(tensor) || tensor.is_meta() || tensor.numel() == 0) return false;
  const c10::StorageImpl* const storage = storage_impl(tensor);
  if (static_cast<int64_t>(storage->nbytes()) < kSmallBytes || stretch_of(tensor).count < kSmallBytes ||
      storage->allocator() == nullptr)
    return false;
  return !is_of_leaf(tensor) && !zero::is_watched(storage) && !(is_buffer_ && !tensor.requires_grad() && is_buffer_(storage));
}

// Keeps the whole storage, as LibTorch would, unless the tensor is a small part of it, such as some
// rows of a data set.
std::shared_ptr<SavedStore::Memory> SavedStore::Forward::memory_of(const at::Tensor& tensor) {
  const Version version = Version::of(tensor);
  const auto [entry, is_new] = known_.emplace(storage_impl(tensor), KnownStorage{weak_storage(tensor), {}});
  KnownStorage& known = entry->second;
  if (!is_new && known.storage.expired()) known = KnownStorage{weak_storage(tensor), {}};
  std::erase_if(known.memories, [](const auto& one) { return one.first.has_passed(); });
  ByteRange own = stretch_of(tensor);
  own.count += own.begin % kAlignedBytes;
  own.begin -= own.begin % kAlignedBytes;
  const ByteRange all{0, static_cast<int64_t>(storage_impl(tensor)->nbytes())};
  for (const auto& [of, weak] : known.memories)
    if (auto memory = weak.lock(); memory && of == version && memory->stretch().holds(own)) return memory;
  const auto memory = std::make_shared<Memory>(store_, tensor, 2 * own.count >= all.count ? all : own, order_);
  memory->join();
  known.memories.emplace_back(version, memory);
  return memory;
}

void SavedStore::Forward::pack(SavedTensor& saved, const at::Tensor& tensor) {
  SavedBytes::note(tensor);
  saved.version = Version::of(tensor);
  if (!is_moved(tensor)) {
    saved.kept = without_graph(tensor);
    return;
  }
  const UnobservedScope unseen;
  saved.view.emplace(tensor);
  saved.memory = memory_of(tensor);
}

}  // namespace gannet::activation
