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
import org.apache.kafka.server.log.remote.storage.*;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/**
 * A storage manager that chooses one of several roots for each segment, and returns the location (KIP-917, use 1).
 *
 * `rsm.config.roots` is DIRECTORY=URL,DIRECTORY=URL: where files are written, and how readers know the place. Files are
 * called SEGMENT-ID.log and so on, with Kafka's own suffixes, so that the location of the log tells those of the indexes.
 */
public final class TwoRoots implements RemoteStorageManager {
    private static final Map<IndexType, String> SUFFIXES = Map.of(
        IndexType.OFFSET, ".index", IndexType.TIMESTAMP, ".timeindex", IndexType.TRANSACTION, ".txnindex",
        IndexType.PRODUCER_SNAPSHOT, ".snapshot", IndexType.LEADER_EPOCH, ".leader_epoch_checkpoint");
    private String[] roots;

    public void configure(Map<String, ?> configs) { roots = configs.get("roots").toString().split(","); }

    public void close() { }

    private String[] root(RemoteLogSegmentMetadata segment) {
        return roots[Math.floorMod(segment.remoteLogSegmentId().id().hashCode(), roots.length)].split("=");
    }

    private Path file(RemoteLogSegmentMetadata segment, String suffix) {
        return Path.of(root(segment)[0], segment.remoteLogSegmentId().id() + suffix);
    }

    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        try {
            Files.copy(data.logSegment(), file(segment, ".log"));
            Files.copy(data.offsetIndex(), file(segment, ".index"));
            Files.copy(data.timeIndex(), file(segment, ".timeindex"));
            Files.copy(data.producerSnapshotIndex(), file(segment, ".snapshot"));
            if (data.transactionIndex().isPresent())
                Files.copy(data.transactionIndex().get(), file(segment, ".txnindex"));
            ByteBuffer epochs = data.leaderEpochIndex();
            byte[] bytes = new byte[epochs.remaining()];
            epochs.get(bytes);
            Files.write(file(segment, ".leader_epoch_checkpoint"), bytes);
        } catch (IOException error) { throw new RemoteStorageException(error); }
        String location = root(segment)[1] + "/" + segment.remoteLogSegmentId().id() + ".log";
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
