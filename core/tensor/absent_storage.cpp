#include "tensor/absent_storage.h"

#include <string_view>

namespace gannet {
namespace {

// LibTorch can make a storage throw when it is read, but offers no way to undo that, since the flag
// is private. An explicit instantiation may name a private member; this is the only place that
// reaches the flag in this way.
template <auto kMember>
struct StorageFlagAccess {
  friend bool& throws_when_read(c10::StorageImpl& storage) { return storage.*kMember; }
};
bool& throws_when_read(c10::StorageImpl& storage);
template struct StorageFlagAccess<&c10::StorageImpl::throw_on_immutable_data_ptr_>;

// Every message begins with this mark, which distinguishes Gannet's errors from LibTorch's
// own.
constexpr std::string_view kMark = "gannet: ";

}  // namespace

void take_bytes(c10::StorageImpl& storage, const std::string& message) {
  storage.set_data_ptr_noswap(at::DataPtr(nullptr, storage.device()));
  storage.release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(kMark) + message);
}

void give_bytes(c10::StorageImpl& storage, void* bytes) {
  throws_when_read(storage) = false;
  storage.set_data_ptr_noswap(at::DataPtr(bytes, storage.device()));
}

std::optional<Error> absent_bytes_error(const c10::Error& error) {
  if (!error.msg().starts_with(kMark)) return std::nullopt;
  const std::string message = error.msg().substr(kMark.size());
  const size_t colon = message.rfind(": ");
  if (colon == std::string::npos) return Error(ErrorCode::kOrder, message);
  return Error(ErrorCode::kOrder, message.substr(0, colon), message.substr(colon + 2));
}

std::optional<Error> error_of(const std::exception& exception) {
  if (const auto* ours = dynamic_cast<const Error*>(&exception)) return *ours;
  if (const auto* theirs = dynamic_cast<const c10::Error*>(&exception)) return absent_bytes_error(*theirs);
  return std::nullopt;
}

}  // namespace gannet
