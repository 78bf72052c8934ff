#include "tensor/absent_storage.h"

namespace gannet {
namespace {

// LibTorch has a way to make a storage throw when it is read, and none to undo that: the flag is private. An explicit
// instantiation may name a private member, which is the one place of ours that does.
template <auto kMember>
struct Reach {
  friend bool& throws_when_read(c10::StorageImpl& storage) { return storage.*kMember; }
};
bool& throws_when_read(c10::StorageImpl& storage);
template struct Reach<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

}  // namespace

void take_bytes(c10::StorageImpl& storage, const std::string& message) {
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, storage.device()));
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(message);
}

void give_bytes(c10::StorageImpl& storage, void* bytes) {
  throws_when_read(storage) = false;
  storage.set_data_ptr_noswap(at::DataPtr(bytes, storage.device()));
}

}  // namespace gannet
