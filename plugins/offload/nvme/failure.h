// This plugin's error messages. Each names the attempt, the place, the system's error and the
// next step.
#pragma once

#include <cstdint>
#include <gannet/sdk.hpp>
#include <string>

namespace nvme {

using gannet::sdk::Failure;

std::string bytes_text(uint64_t bytes);               // for example "1.5 GB"
std::string errno_text(int code);                     // for example "No space left on device (errno 28)"
uint64_t free_bytes(const std::string& path);         // 0 if it is unknown
std::string free_text(const std::string& nvme_path);  // for example "12.3 GB are free in '/local/nvme'"

// Makes the failure of a system call: GANNET_IO_ERROR (GANNET_OUT_OF_MEMORY for ENOMEM) with the
// text "<attempt> failed: <errno>; <free space>: <next step>".
Failure system_failure(const std::string& attempt, int code, const std::string& nvme_path);

}  // namespace nvme
