// Archives with false fields, truncated or flipped archives, and files that are something else.
#include "files/pt_file.h"
#include "files/support.h"

namespace gannet::files {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

const std::string kStorage = "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\4tQ."s;

HandZip good() {
  return {{{"a/data.pkl", kStorage}, {"a/byteorder", "little"}, {"a/data/0", std::string(16, 'x')}, {"a/version", "3\n"}}};
}

class DamagedZip : public FolderTest {
 protected:
  std::string refused(ErrorCode code, const std::string& bytes) {
    write_text(file("it.pt"), bytes);
    const std::string message = error_of(code, [&] { PtFile::open(file("it.pt")); });
    EXPECT_THAT(message, HasSubstr(file("it.pt")));
    return message;
  }
  std::string corrupted(const HandZip& zip) { return refused(ErrorCode::kCorrupt, zip.bytes()); }
  std::string unsupported(const HandZip& zip) { return refused(ErrorCode::kUnsupported, zip.bytes()); }
};

TEST_F(DamagedZip, the_archive_that_the_others_are_made_of_is_whole) {
  write_text(file("it.pt"), good().bytes());
  EXPECT_EQ(PtFile::open(file("it.pt")).root().kind, Object::Kind::kStorage);
}

TEST_F(DamagedZip, lies_of_the_directory_are_found) {
  HandZip zip = good();
  zip.entries[2].claimed_bytes = 1 << 30;
  EXPECT_THAT(corrupted(zip), HasSubstr("another size here than in the directory"));
  zip.entries[2].flags = 8;  // then only the directory has the sizes
  EXPECT_THAT(corrupted(zip), HasSubstr("should have 1073741824 bytes"));
  zip.entries[2].claimed_bytes = 12;
  EXPECT_THAT(corrupted(zip), HasSubstr("has 12 bytes, the pickle says 16"));
  zip.entries[2].claimed_bytes = 0xffffffff;
  EXPECT_THAT(corrupted(zip), HasSubstr("has no zip64 sizes"));
  zip.entries[2].extra = le<uint16_t>(1) + le<uint16_t>(16) + le<uint64_t>(uint64_t{1} << 63) + le<uint64_t>(uint64_t{1} << 63);
  EXPECT_THAT(corrupted(zip), HasSubstr("should have 9223372036854775808 bytes"));
  zip.entries[2].extra.pop_back();
  EXPECT_THAT(corrupted(zip), HasSubstr("no zip64 sizes"));

  zip = good();
  zip.entries[2].claimed_offset = 0;
  EXPECT_THAT(corrupted(zip), HasSubstr("another name here"));
  zip.entries[2].claimed_offset = 5;
  EXPECT_THAT(corrupted(zip), HasSubstr("should have its header here, and has none"));
  zip.entries[2].claimed_offset = 1 << 30;
  EXPECT_THAT(corrupted(zip), HasSubstr("where no entry can be"));

  zip = good();
  zip.claimed_entries = 5;
  EXPECT_THAT(corrupted(zip), HasSubstr("should have 5"));
  zip.claimed_entries = 3;
  EXPECT_THAT(corrupted(zip), HasSubstr("follow the zip directory's last entry"));
  zip.claimed_entries = 60000;
  EXPECT_THAT(corrupted(zip), HasSubstr("60000 entries"));

  zip = good();
  zip.entries[1].local_name = "a/other";
  EXPECT_THAT(corrupted(zip), HasSubstr("another name here"));
}

TEST_F(DamagedZip, entries_may_not_overlap_or_come_twice) {
  HandZip inner = good();
  inner.entries[2].content = std::string(200, 'x');
  // A whole entry's header inside of another's content.
  const std::string hidden = le<uint32_t>(0x04034b50) + le<uint16_t>(20) + le<uint16_t>(8) + std::string(10, '\0') +
                             le<uint32_t>(0) + le<uint32_t>(0) + le<uint16_t>(8) + le<uint16_t>(0) + "a/inside";
  inner.entries[2].content.replace(20, hidden.size(), hidden);
  const std::string bytes = inner.bytes();
  inner.entries.push_back({"a/inside", "", 0, 8, 10, static_cast<int64_t>(bytes.find(hidden))});
  EXPECT_THAT(corrupted(inner), HasSubstr("overlap"));

  HandZip twice = good();
  twice.entries.push_back(twice.entries[2]);
  EXPECT_THAT(corrupted(twice), HasSubstr("two entries 'a/data/0'"));
}

TEST_F(DamagedZip, compressed_encrypted_and_foreign_archives_are_told_apart) {
  HandZip zip = good();
  zip.entries[2].method = 8;
  EXPECT_THAT(unsupported(zip), HasSubstr("is compressed (method 8)"));
  zip = good();
  zip.entries[2].flags = 1;
  EXPECT_THAT(unsupported(zip), HasSubstr("is encrypted"));
  zip = good();
  zip.entries[0].name = "a/other.pkl";
  EXPECT_THAT(unsupported(zip), HasSubstr("without a data.pkl"));
  zip = good();
  zip.entries.push_back({"a/code/__torch__.py", "code"});
  zip.entries.back().method = 8;
  write_text(file("it.pt"), zip.bytes());
  EXPECT_EQ(PtFile::open(file("it.pt")).root().kind, Object::Kind::kStorage) << "what nobody reads may be compressed";
  zip = good();
  zip.entries.push_back({"b/data.pkl", "N."});
  EXPECT_THAT(unsupported(zip), HasSubstr("two pickles"));
  zip = good();
  zip.entries[1].content = "big";
  EXPECT_THAT(unsupported(zip), HasSubstr("big-endian"));
  zip.entries[1].content = "middle";
  EXPECT_THAT(corrupted(zip), HasSubstr("the byte order is 'middle'"));
  zip = good();
  zip.entries[2].name = "a/data/1";
  EXPECT_THAT(corrupted(zip), HasSubstr("speaks of the storage '0'"));
  zip = good();
  zip.entries[0].content += "N";
  EXPECT_THAT(corrupted(zip), HasSubstr("1 bytes follow the pickle's end"));
}

TEST_F(DamagedZip, a_flipped_bit_of_the_pickle_is_found_by_its_checksum) {
  std::string bytes = read_text(data("nested_protocol2.pt"));
  const size_t at = bytes.find("wte.weight");
  bytes[at] ^= 1;
  EXPECT_THAT(refused(ErrorCode::kCorrupt, bytes), HasSubstr("its checksum is another"));
}

TEST_F(DamagedZip, a_file_cut_anywhere_is_refused) {
  for (const std::string name : {"views.pt", "views_legacy.pt"}) {
    const std::string whole = read_text(data(name));
    for (size_t bytes = 0; bytes < whole.size(); bytes += 1 + bytes / 40) refused(ErrorCode::kCorrupt, whole.substr(0, bytes));
  }
}

TEST_F(DamagedZip, other_files_are_named) {
  EXPECT_THAT(refused(ErrorCode::kCorrupt, ""), HasSubstr("is empty"));
  EXPECT_THAT(refused(ErrorCode::kCorrupt, "hello"), HasSubstr("torch.save did not write this"));
  EXPECT_THAT(refused(ErrorCode::kUnsupported, "\x02\0\0\0\0\0\0\0{}"s), HasSubstr("is a safetensors file"));
  EXPECT_THAT(refused(ErrorCode::kUnsupported, std::string(257, 'x') + "ustar"), HasSubstr("tar archive"));
  EXPECT_THAT(refused(ErrorCode::kUnsupported, "\x80\2N."), HasSubstr("torch.save did not write"));
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { PtFile::open(file("none.pt")); }), HasSubstr("none.pt"));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { PtFile::open(root_.string()); }), HasSubstr("is not a file"));
}

TEST_F(DamagedZip, one_element_that_stands_for_many_does_not_fill_memory) {
  const std::string tensor =
      "ctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpuK\1tQK\0J\0\0\0\x40J\0\0\0\x40\x86K\0K\0\x86\x89}tR."s;
  const HandZip zip{{{"a/data.pkl", tensor}, {"a/data/0", le(2.5f)}}};
  write_text(file("it.pt"), zip.bytes());
  const PtFile opened = PtFile::open(file("it.pt"));
  EXPECT_THAT(error_of(ErrorCode::kUnsupported, [&] { opened.read(opened.root().tensor); }),
              HasSubstr("more than twice the file"));
}

}  // namespace
}  // namespace gannet::files
