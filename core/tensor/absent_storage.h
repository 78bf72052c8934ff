// Storages that give up their bytes but keep their identity. Views of them and tensors that
// autograd has saved stay valid, and find the bytes again when they are given back.
//
//   take_bytes(*tensor.storage().unsafeGetStorageImpl(), "parameter 'w' is not here: gather it");  // reading it now throws that
//   give_bytes(*tensor.storage().unsafeGetStorageImpl(), buffer);                                 // reads `buffer`
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <gannet/error.h>

#include <optional>
#include <string>

namespace gannet {

// Frees the memory that the storage owns. Until give_bytes, every request for its address throws a
// c10::Error: LibTorch throws it and supports no other type. `message` says what happened and,
// after its last ": ", the next step.
void take_bytes(c10::StorageImpl& storage, const std::string& message);
// `bytes` has storage.nbytes() bytes on the storage's device. The caller keeps ownership, and keeps
// it alive until take_bytes or the next give_bytes.
void give_bytes(c10::StorageImpl& storage, void* bytes);

// Converts such a c10::Error to our Error(kOrder); nullopt for any other one.
std::optional<Error> absent_bytes_error(const c10::Error& error);

}  // namespace gannet
