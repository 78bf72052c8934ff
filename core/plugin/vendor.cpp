// Determines the vendor part of the LibTorch in this process.
#include <ATen/Version.h>

#include "plugin/note.h"

namespace gannet::plugin {

// LibTorch's build settings contain the vendor's version: "..., CUDA_VERSION=13.0, ...", or
// "HIP_VERSION=6.4.43482-0f2d60242". Of HIP's, the first two numbers say which structs its runtime has.
std::string vendor_of_libtorch() {
  static const std::string vendor = [] {
    const std::string settings = at::show_config();
    for (const auto& [setting, key] : {std::pair{"CUDA_VERSION=", "cuda="}, {"HIP_VERSION=", "rocm="}}) {
      const size_t found = settings.find(setting);
      if (found == std::string::npos) continue;
      const size_t begin = found + std::string(setting).size();
      const std::string version = settings.substr(begin, settings.find_first_of(", \n", begin) - begin);
      const size_t minor = version.find('.');
      return key + (minor == std::string::npos ? version : version.substr(0, version.find('.', minor + 1)));
    }
    return std::string();
  }();
  return vendor;
}

}  // namespace gannet::plugin
