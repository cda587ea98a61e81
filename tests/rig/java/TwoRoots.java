import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/**
 * A storage manager that chooses one of several roots for each segment, and returns the location (KIP-917, use 1).
 *
 * `rsm.config.roots` is DIRECTORY=URL,DIRECTORY=URL: where files are written, and how readers know the place. Files are
 * called SEGMENT-ID.log and so on, with Kafka's own suffixes, so that the location of the log tells those of the indexes.
 * The roots take turns, so that two segments already use two roots.
 */
public final class TwoRoots implements RemoteStorageManager {
    private static final Map<IndexType, String> SUFFIXES = Map.of(
        IndexType.OFFSET, ".index", IndexType.TIMESTAMP, ".timeindex", IndexType.TRANSACTION, ".txnindex",
        IndexType.PRODUCER_SNAPSHOT, ".snapshot", IndexType.LEADER_EPOCH, ".leader_epoch_checkpoint");
    private final AtomicInteger copies = new AtomicInteger();
    private String[] roots;

    public void configure(Map<String, ?> configs) { roots = configs.get("roots").toString().split(","); }

    public void close() { }

    private Path file(RemoteLogSegmentMetadata segment, String suffix) throws RemoteStorageException {
        if (segment.customMetadata().isEmpty())
            throw new RemoteResourceNotFoundException("no location of " + segment.remoteLogSegmentId());
        String location = new String(segment.customMetadata().get().value(), StandardCharsets.UTF_8);
        for (String root : roots) {
            String[] directoryAndUrl = root.split("=");
            if (location.startsWith(directoryAndUrl[1] + "/")) return file(directoryAndUrl[0], segment, suffix);
        }
        throw new RemoteStorageException(location + " is under no root");
    }

    private static Path file(String directory, RemoteLogSegmentMetadata segment, String suffix) {
        return Path.of(directory, segment.remoteLogSegmentId().id() + suffix);
    }

    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        String[] directoryAndUrl = roots[Math.floorMod(copies.getAndIncrement(), roots.length)].split("=");
        String directory = directoryAndUrl[0];
        try {
            Files.copy(data.logSegment(), file(directory, segment, ".log"));
            Files.copy(data.offsetIndex(), file(directory, segment, ".index"));
            Files.copy(data.timeIndex(), file(directory, segment, ".timeindex"));
            Files.copy(data.producerSnapshotIndex(), file(directory, segment, ".snapshot"));
            if (data.transactionIndex().isPresent())
                Files.copy(data.transactionIndex().get(), file(directory, segment, ".txnindex"));
            ByteBuffer epochs = data.leaderEpochIndex();
            byte[] bytes = new byte[epochs.remaining()];
            epochs.get(bytes);
            Files.write(file(directory, segment, ".leader_epoch_checkpoint"), bytes);
        } catch (IOException error) { throw new RemoteStorageException(error); }
        String location = directoryAndUrl[1] + "/" + segment.remoteLogSegmentId().id() + ".log";
        return Optional.of(new CustomMetadata(location.getBytes(StandardCharsets.UTF_8)));
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE - 1);
    }

    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int last)
            throws RemoteStorageException {
        try (FileChannel channel = FileChannel.open(file(segment, ".log"))) {
            ByteBuffer bytes = ByteBuffer.allocate((int) Math.min(channel.size(), last + 1L) - start);
            while (bytes.hasRemaining() && channel.read(bytes, start + bytes.position()) >= 0) { }
            return new ByteArrayInputStream(bytes.array(), 0, bytes.position());
        } catch (IOException error) { throw new RemoteStorageException(error); }
    }

    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        Path path = file(segment, SUFFIXES.get(type));
        if (!Files.exists(path)) throw new RemoteResourceNotFoundException(path + " does not exist");
        try {
            return Files.newInputStream(path);
        } catch (IOException error) { throw new RemoteStorageException(error); }
    }

    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) throws RemoteStorageException {
        try {
            for (String suffix : SUFFIXES.values()) Files.deleteIfExists(file(segment, suffix));
            Files.deleteIfExists(file(segment, ".log"));
        } catch (IOException error) { throw new RemoteStorageException(error); }
    }
}
