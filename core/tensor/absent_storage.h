// Removes the bytes of a storage and later restores them, while the storage keeps its identity. Its
// views and the tensors that autograd has saved stay valid, and see the bytes again when they are
// restored.
//
//   take_bytes(*tensor.storage().unsafeGetStorageImpl(), "parameter 'w' is not here: gather it");  // a read throws this
//   give_bytes(*tensor.storage().unsafeGetStorageImpl(), buffer);                                 // now it reads `buffer`
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <gannet/error.h>

#include <optional>
#include <string>

namespace gannet {

// Frees the memory that the storage owns. Until give_bytes, every request for its address throws a
// c10::Error, since LibTorch supports no other exception type for this. `message` says what
// happened and, after its last ": ", the next step.
void take_bytes(c10::StorageImpl& storage, const std::string& message);
// `bytes` points to storage.nbytes() bytes on the storage's device. The caller keeps ownership, and
// must keep them alive until take_bytes or the next give_bytes.
void give_bytes(c10::StorageImpl& storage, void* bytes);

// Converts a c10::Error about absent bytes to an Error(kOrder); nullopt for any other c10::Error.
std::optional<Error> absent_bytes_error(const c10::Error& error);

}  // namespace gannet
