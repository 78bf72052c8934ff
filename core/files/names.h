// What is said where the names in a file are not the model's: some of both, and a prefix that would make all of them fit.
#pragma once

#include <string>
#include <vector>

namespace gannet::files {

// "a, b, c and 12 more"; "none" for no names.
std::string some_names(const std::vector<std::string>& names, size_t most = 3);

// The option of `gannet checkpoint import` under which nine in ten names of the model, or more, are the file's, "module.=" where
// the file has a prefix (of torch's DataParallel, of torch.compile, of a wrapper) and "=model." where it lacks one; "" where no
// prefix does.
std::string rename_that_fits(const std::vector<std::string>& in_file, const std::vector<std::string>& in_model);
// The sentence around it, which heads a next step; "" where there is none.
std::string rename_advice(const std::string& path, const std::vector<std::string>& in_file,
                          const std::vector<std::string>& in_model);

}  // namespace gannet::files
