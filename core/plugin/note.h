// Reads and checks a plugin file's note, before any of its code runs.
#pragma once

#include <optional>
#include <string>

#include "plugin/plugin.h"

namespace gannet::plugin {

// Whether a pinned file's fingerprint must match this process. The conformance kit uses kAny: it
// loads the LibTorch that the file brings.
enum class Fingerprint { kOfThisHost, kAny };

// Reads the file and judges it by its note. Never throws: an unusable file gives a Candidate with
// the reason.
Candidate read_candidate(const std::string& file, Fingerprint wanted = Fingerprint::kOfThisHost);

// Whether the candidate is a valid shared object that does not claim to be a plugin: an ordinary
// library in a plugin folder.
bool is_foreign(const Candidate& candidate);

// The fields in which two fingerprints ("torch=2.11.0,cxx11abi=1,...") differ, as a sentence; "" if
// they are equal. `whose`: owner of the second fingerprint, "this Gannet's".
std::string fingerprint_difference(const std::string& plugin, const std::string& host, const char* whose);

// The vendor part of the LibTorch in this process: "cuda=13.0"; "" for a CPU-only build.
std::string vendor_of_libtorch();

// "optimizer/adam@cpu" for a descriptor, in lower case as in a note.
std::string provided_name(const gannet_descriptor& descriptor);

}  // namespace gannet::plugin
