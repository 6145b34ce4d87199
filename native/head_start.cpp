#include "head_start.hpp"

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "memory.hpp"

namespace gristmill {

namespace {
class File {
public:
    explicit File(const std::string& path) : handle_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (handle_ >= 0) close(handle_);
    }
    // As many bytes as there are, up to `size`; none where it cannot be read.
    size_t read(uint64_t at, uint8_t* out, size_t size) const {
        size_t done = 0;
        while (done < size) {
            ssize_t got = pread(handle_, out + done, size - done, static_cast<off_t>(at + done));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) break;
            done += static_cast<size_t>(got);
        }
        return done;
    }

private:
    int handle_;
};

// Of UTF-8 or UTF-16.
bool has_mark(const uint8_t* data, size_t size) {
    std::string_view text(reinterpret_cast<const char*>(data), size);
    return text.starts_with("\xEF\xBB\xBF") || text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF");
}

size_t whole_lines(const uint8_t* data, size_t size) {
    return std::string_view(reinterpret_cast<const char*>(data), size).rfind('\n') + 1;  // npos + 1 is 0
}
}  // namespace

HeadStart::HeadStart(std::string path, JsonFields fields, PieceCounter counter, Reach reach)
    : path_(std::move(path)), fields_(std::move(fields)), counter_(std::move(counter)), reach_(reach), thread_([this] { run(); }) {}

bool HeadStart::stop() {
    is_stopped_ = true;
    wait();
    return !is_failed_;
}

void HeadStart::wait() {
    if (thread_.joinable()) thread_.join();
}

void HeadStart::run() {
    try {
        read_blocks();
        counter_.shrink();
    } catch (...) {
        is_failed_ = true;  // part of a document may be counted
    }
}

void HeadStart::read_blocks() {
    File file(path_);
    Pages room(reach_.block_bytes);
    for (uint64_t at = 0; !is_stopped_ && at < reach_.most_bytes;) {
        size_t wanted = std::min<uint64_t>(reach_.block_bytes, reach_.most_bytes - at);
        size_t size = whole_lines(room.data(), file.read(at, room.data(), wanted));
        if (size == 0 || (at == 0 && has_mark(room.data(), size)) || !add_block(room.data(), size, at)) return;
        at += size;
    }
}

bool HeadStart::add_block(const uint8_t* data, size_t size, uint64_t begin) {
    JsonDocuments documents = parse_json_lines(data, size, fields_, 1);
    if (!documents.bad.empty()) return false;
    Block& block = blocks_.emplace_back(Block{std::move(documents), begin, begin + size});
    const std::function<void()> on_full = [] { throw std::length_error("more pieces than a head start has room for"); };
    const auto* text = reinterpret_cast<const char*>(block.documents.text.data());
    const auto& offsets = block.documents.offsets;
    for (size_t i = 0; i + 1 < offsets.size() && !is_stopped_; ++i) {
        counter_.add({text + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i])}, 1, on_full);
        ++block.num_counted;
    }
    return true;
}

}  // namespace gristmill
