// Container modules, created as tensor names need them, in the order of the Python model.
#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

namespace gannet::exported {

class ModuleTree {
 public:
  explicit ModuleTree(torch::nn::Module& root) : root_(root) {}

  // The module that holds the tensor of this name, and the last part of the name.
  std::pair<torch::nn::Module*, std::string> place_of(const std::string& name) {
    torch::nn::Module* module = &root_;
    size_t begin = 0;
    for (size_t dot = name.find('.'); dot != std::string::npos; begin = dot + 1, dot = name.find('.', begin)) {
      const std::string path = name.substr(0, dot), part = name.substr(begin, dot - begin);
      auto& child = modules_[path];
      if (!child) child = module->register_module(part, std::make_shared<torch::nn::Module>(part));
      module = child.get();
    }
    return {module, name.substr(begin)};
  }
  // Null: the root.
  std::shared_ptr<torch::nn::Module> owner_of(const std::string& name) const {
    const auto found = modules_.find(name.substr(0, name.rfind('.')));
    return found == modules_.end() ? nullptr : found->second;
  }

 private:
  torch::nn::Module& root_;
  std::map<std::string, std::shared_ptr<torch::nn::Module>> modules_;
};

}  // namespace gannet::exported
