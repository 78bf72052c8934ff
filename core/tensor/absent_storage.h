// Storages that give up their bytes and keep their identity: views of them, and what autograd has saved, stay valid and find
// the bytes again when they come back.
//
//   take_bytes(*tensor.storage().unsafeGetStorageImpl(), "parameter 'w' is not here: gather it");  // reading it now throws that
//   give_bytes(*tensor.storage().unsafeGetStorageImpl(), buffer);                                 // and now it reads `buffer`
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <gannet/error.h>

#include <optional>
#include <string>

namespace gannet {

// Frees what the storage owns. Until give_bytes, whoever asks it for an address gets a c10::Error: LibTorch throws it, and takes
// no other. `message` is what happened, and after its last ": " the next step.
void take_bytes(c10::StorageImpl& storage, const std::string& message);
// `bytes` has storage.nbytes() bytes on its device, and stays the caller's: it lives until take_bytes or the next give_bytes.
void give_bytes(c10::StorageImpl& storage, void* bytes);

// Such a c10::Error as ours, kOrder; nullopt for any other one.
std::optional<Error> absent_bytes_error(const c10::Error& error);

}  // namespace gannet
