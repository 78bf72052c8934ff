// Plugins as the rest of the core sees them: found by (kind, name, device), opened, checked, and
// ready to create objects.
//
//   plugin::Registry registry({.explicit_paths = settings.plugin_paths});
//   const plugin::Plugin& adam = registry.require(GANNET_KIND_OPTIMIZER, "AdamW", "cpu");
//   plugin::ParamSet params = plugin::parse_params(adam, settings.optimizer.params, where);
#pragma once

#include <gannet/abi.h>
#include <gannet/error.h>
#include <gannet/value.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gannet::plugin {

class TrustList;

// A plugin from a file that was opened and passed the handshake. Lives as long as the process.
struct Plugin {
  // Points into the plugin's own memory, which is never unmapped.
  const gannet_descriptor* descriptor = nullptr;
  std::string file;
  std::string hash;  // the XXH3 hash of the file, in hexadecimal

  gannet_kind kind() const { return static_cast<gannet_kind>(descriptor->kind); }
  std::string name() const { return descriptor->name; }
  std::string version() const { return descriptor->version; }
  std::string device() const { return descriptor->device ? descriptor->device : ""; }
};

// An examined file and the outcome, which `gannet plugins list -v` prints.
struct Candidate {
  std::string file;
  std::vector<std::string> provides;  // "optimizer/adam@cpu", from the note
  gannet_tier tier = GANNET_TIER_STABLE;
  // The LibTorch and the C++ ABI that the file was built for. In the pinned tier, it must equal
  // host_fingerprint().
  std::string fingerprint;
  std::string vendor;  // the vendor part of LibTorch that the file uses; "": none
  uint16_t abi_minor = 0;
  uint64_t required_features = 0;
  std::string rejected;              // why the file cannot be used; "" if no reason is known before opening it
  std::string remedy;                // what the user can do; "": rebuild the file
  bool is_own = false;               // whether it is in a folder of Gannet's own plugins
  bool is_for_other_vendor = false;  // rejected, because LibTorch in this process is for another vendor's devices
};

class Registry {
 public:
  struct Options {
    std::vector<std::string> explicit_paths;  // the files or folders that the config names
    // Files or folders that may be opened even though every user of the machine may change them or
    // a folder on their path.
    std::vector<std::string> allowed_paths = {};
    // The value of "plugins": {"trusted": ...} in the config: only files with a hash in that list
    // are opened. "": any file may be opened; "true": the user's own list (trust.h).
    std::string trusted = "";
  };
  explicit Registry(Options options);

  // The plugin for (kind, name, device). A plugin made for any device matches every `device`. If
  // there is none, throws Error(kPlugin) with the request, all places searched, the rejected files
  // with the reasons, and the nearest names.
  const Plugin& require(gannet_kind kind, const std::string& name, const std::string& device = "");
  // Returns null if no file provides the plugin; still throws if a file that provides it is broken.
  const Plugin* find(gannet_kind kind, const std::string& name, const std::string& device = "");
  // The accelerators that "auto" may choose, best first (by gannet_accelerator_api::priority,
  // then by name). A rejected or broken file is skipped with a warning.
  std::vector<const Plugin*> accelerators_best_first();
  // Opens one file, whatever it provides (`gannet plugins info PATH`), with the same checks as for
  // files found by the search.
  std::vector<const Plugin*> open_file(const std::string& path);

  // Checks a plugin that was opened through another registry. Throws the errors that opening it
  // through this one would throw.
  void require_trust(const Plugin& plugin) const;

  const std::vector<Candidate>& candidates() const { return candidates_; }
  const std::vector<std::string>& searched() const { return searched_; }
  // The plugins opened through this registry, in the order of opening.
  const std::vector<const Plugin*>& opened() const { return opened_; }

 private:
  Candidate judge(const std::string& file, const std::string& way) const;
  std::vector<const Plugin*> open_candidate(const Candidate& candidate);

  // In the order of the search: the first usable candidate that provides a name wins.
  std::vector<Candidate> candidates_;
  std::vector<std::string> searched_;
  std::vector<std::string> allowed_;        // canonical paths
  std::shared_ptr<const TrustList> trust_;  // null: files with any hash are opened
  // Owned by open() (open.h), which never frees them.
  std::vector<const Plugin*> opened_;
};

const char* kind_name(gannet_kind kind);  // "optimizer"
int32_t priority_of(const Plugin& accelerator);

// The values of the params in a plugin's schema, which this object owns. The dynamic params are
// also available as flat lists, with names such as "lr", "betas[0]", "betas[1]" and "weight_decay".
class ParamSet {
 public:
  const gannet_params& view() const { return view_; }
  const std::vector<std::string>& dynamic_names() const { return dynamic_names_; }
  const std::vector<double>& dynamic_values() const { return dynamic_values_; }
  const std::vector<uint32_t>& dynamic_roles() const { return dynamic_roles_; }  // gannet_param_role

 private:
  friend ParamSet parse_params(const Plugin&, const Dict&, const std::function<std::string(const std::string& member)>&);
  struct Storage;
  std::shared_ptr<Storage> storage_;
  gannet_params view_{};
  std::vector<std::string> dynamic_names_;
  std::vector<double> dynamic_values_;
  std::vector<uint32_t> dynamic_roles_;
};

// Converts and checks `params` against the plugin's schema. `where(member)` gives
// "file:line:column" of a member, for errors. Throws Error(kConfig) on an unknown key (with the
// nearest known one), a wrong type, a value out of range, or a missing value.
ParamSet parse_params(const Plugin& plugin, const Dict& params,
                      const std::function<std::string(const std::string& member)>& where);

// The host's fingerprint, which a pinned plugin must have.
std::string host_fingerprint();

// A gannet_error with room for a long message. raise_unless_ok() throws it as an exception:
//   ErrorBuffer error; raise_unless_ok(api->create(..., error), error, plugin, "optimizer plugin AdamW (file)")
class ErrorBuffer {
 public:
  ErrorBuffer() : error_{sizeof(gannet_error), 0, sizeof(text_) - 1, text_} { text_[0] = text_[sizeof(text_) - 1] = 0; }
  ErrorBuffer(const ErrorBuffer&) = delete;
  operator gannet_error*() { return &error_; }
  std::string message() const;  // the message, with control characters made visible

 private:
  // The plugin may fill all bytes except the last, which stays 0.
  char text_[4097];  // not on the heap, and not zeroed, since every plugin call has one
  gannet_error error_;
};
// Maps a status to an ErrorCode and throws "<who>: <message>" unless it is GANNET_OK.
void raise_unless_ok(int32_t status, const ErrorBuffer& error, const Plugin& plugin, const std::string& who);

// Makes an Error(kPluginFault), for errors that only a defect in the plugin can explain. Its next
// step names the plugin and its version.
Error fault(const Plugin& plugin, const std::string& what);

}  // namespace gannet::plugin
